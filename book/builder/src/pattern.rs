//! Expected output of a command, in which `...` stands for any text.

/// Placeholder: within a line for any text, as a whole line for any number of lines.
pub(crate) const ANY: &str = "...";

/// Returns true if the output matches the expected lines. Spaces at the ends of lines and empty
/// lines at the end of the output are ignored.
pub(crate) fn matches(expected: &[&str], output: &str) -> bool {
    let output: Vec<&str> = output.trim_end().lines().map(str::trim_end).collect();
    let expected: Vec<&str> = expected.iter().map(|line| line.trim_end()).collect();
    lines_match(&expected, &output)
}

/// Lines of the output, each as its first expected line that matches it, if there is one. Expected
/// lines are within-line patterns only.
pub(crate) fn renewed(expected: &[&str], output: &str) -> Vec<String> {
    let renew = |line: &str| {
        let pattern = expected.iter().find(|pattern| line_matches(pattern.trim_end(), line));
        pattern.map_or(line, |pattern| pattern).to_owned()
    };
    output.trim_end().lines().map(|line| renew(line.trim_end())).collect()
}

fn lines_match(expected: &[&str], output: &[&str]) -> bool {
    match (expected, output) {
        ([], rest) => rest.is_empty(),
        ([line, expected @ ..], _) if line.trim() == ANY => {
            (0..=output.len()).any(|skipped| lines_match(expected, &output[skipped..]))
        }
        ([_, ..], []) => false,
        ([line, expected @ ..], [first, output @ ..]) => {
            line_matches(line, first) && lines_match(expected, output)
        }
    }
}

/// Compares a line: its parts between placeholders must follow each other, the first at the start
/// and the last at the end.
fn line_matches(expected: &str, line: &str) -> bool {
    let parts: Vec<&str> = expected.split(ANY).collect();
    let [first, middle @ .., last] = &parts[..] else { return expected == line };
    let Some(mut rest) = line.strip_prefix(first).and_then(|rest| rest.strip_suffix(last)) else {
        return false;
    };
    middle.iter().all(|part| match rest.find(part) {
        Some(at) => {
            rest = &rest[at + part.len()..];
            true
        }
        None => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_match_any_text_and_any_lines() {
        assert!(matches(&["epoch 1 ... 0.8", "...", "end"], "epoch 1 loss 2 score 0.8\na\nb\nend  \n\n"));
        assert!(matches(&["...", "end"], "end\n"));
        assert!(matches(&["a ... b ... c"], "a x b y c"));
        assert!(matches(&[], ""));
    }

    #[test]
    fn other_text_does_not_match() {
        assert!(!matches(&["a"], "b"));
        assert!(!matches(&["a"], "a\nb"));
        assert!(!matches(&["a", "b"], "a"));
        assert!(!matches(&["ab...ba"], "aba"));
        assert!(!matches(&["a ... c ... b"], "a b c b x"));
        assert!(!matches(&[], "a"));
    }
}

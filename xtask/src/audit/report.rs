//! Results of a run of tests under Miri or a sanitizer, from its output.

/// Beginnings of the lines that report a finding.
const FINDINGS: &[&str] = &[
    "error: Undefined Behavior:",
    "error: unsupported operation:",
    "error: memory leaked:",
    "error: deadlock:",
    "error: abnormal termination:",
    "WARNING: ThreadSanitizer:",
];
/// Parts of the lines that report a finding, after the number of the process.
const SANITIZER_ERRORS: &[&str] =
    &["ERROR: AddressSanitizer:", "ERROR: LeakSanitizer:", "ERROR: ThreadSanitizer:"];

/// Results of the tests.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Report {
    pub(super) passed: usize,
    /// A line for each.
    pub(super) findings: Vec<String>,
}

/// Reads the output of `cargo test`.
pub(super) fn read(text: &str) -> Report {
    let mut report = Report::default();
    for line in text.lines() {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        match words[..] {
            ["test", "result:", _, passed, "passed;", ..] => report.passed += passed.parse().unwrap_or(0),
            ["test", name, "...", "FAILED"] => report.findings.push(format!("{name} failed")),
            _ if is_finding(line) => report.findings.push(line.trim().to_owned()),
            _ => {}
        }
    }
    report
}

fn is_finding(line: &str) -> bool {
    FINDINGS.iter().any(|finding| line.starts_with(finding))
        || SANITIZER_ERRORS.iter().any(|finding| line.contains(finding))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_and_findings_are_counted() {
        let text = "running 2 tests\ntest a::b ... ok\ntest a::c ... FAILED\n\
            test result: FAILED. 1 passed; 1 failed; 0 ignored\n\
            error: Undefined Behavior: reading memory at alloc1\n\
            WARNING: ThreadSanitizer: data race (pid=7)\n\
            ==7==ERROR: AddressSanitizer: heap-buffer-overflow\n";
        let report = read(text);
        assert_eq!((report.passed, report.findings.len()), (1, 4), "{report:?}");
        assert!(report.findings[0].contains("a::c"));
        assert_eq!(read("test result: ok. 3 passed; 0 failed"), Report { passed: 3, findings: vec![] });
    }
}

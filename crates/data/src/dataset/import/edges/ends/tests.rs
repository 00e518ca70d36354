use proptest::prelude::*;

use super::{
    super::text::{fields, is_header},
    lines::{any_line, digits, is_data},
    *,
};

/// Simplest possible reference implementation.
fn line_by_line(text: &str, column: Option<usize>) -> Result<Vec<(u32, u32, Option<f32>)>, String> {
    let mut edges = Vec::new();
    let mut first = true;
    for line in text.lines().map(str::trim).filter(|line| is_data(line.as_bytes())) {
        if !(std::mem::take(&mut first) && is_header(fields(line).take(2))) {
            edges.push(any_line::<u32>(line.as_bytes(), 1000, column)?);
        }
    }
    Ok(edges)
}

fn parsed(text: &str, column: Option<usize>) -> Result<Vec<(u32, u32, Option<f32>)>, String> {
    let start = before_data(text.as_bytes());
    let parsed = match column {
        None => Parsed::<u32>::new(text.as_bytes(), start, 1000, None, plain),
        Some(c) => Parsed::new(text.as_bytes(), start, 1000, column, |line| plain_weighted(line, c)),
    };
    let weights: Vec<Option<f32>> = match column {
        None => vec![None; parsed.from.len()],
        Some(_) => parsed.weight.iter().copied().map(Some).collect(),
    };
    assert_eq!(weights.len(), parsed.from.len());
    match parsed.fault {
        Some(message) => Err(message),
        None => {
            Ok(parsed.from.into_iter().zip(parsed.to).zip(weights).map(|((u, v), w)| (u, v, w)).collect())
        }
    }
}

proptest! {
    #[test]
    fn same_as_line_by_line(text in "([0-9]{1,4}[ ,\t;]{1,2}[0-9.\"]{1,3}[ \
        ,;x]{0,2}[0-9]{0,2}\r?\n|#x\n|a,b\n| ?\n){0,8}") {
        prop_assert_eq!(parsed(&text, None), line_by_line(&text, None));
    }

    #[test]
    fn weights_are_the_same_as_line_by_line(
        text in "([0-9]{1,3}[ ,\t][0-9]{1,3}[ ,;\t]{1,2}[0-9.e\"-]{1,4}([ \
            ,;\t]{1,2}([0-9.]{1,12}|x|é|nan|-1|1e30|1e99)){0,2}[ ]?\r?\n|#x\n){1,4}",
        column in 2usize..5,
    ) {
        prop_assert_eq!(parsed(&text, None), line_by_line(&text, None));
        prop_assert_eq!(parsed(&text, Some(column)), line_by_line(&text, Some(column)));
    }
}

proptest! {
    #[test]
    fn digit_runs_parse_to_their_value(number: u64, behind in "[ \t,x]?[0-9 ]{0,9}", shift in 0u32..64) {
        let number = number >> shift;
        let text = format!("{number}{behind}");
        let plain: String = text.chars().take_while(char::is_ascii_digit).collect();
        let expected = (plain.len() <= 18).then(|| (plain.parse::<u64>().unwrap(), plain.len()));
        prop_assert_eq!(digits(text.as_bytes(), 0), expected, "{}", text);
    }
}

#[test]
fn lines_are_counted_and_errors_located() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("e.txt");
    let mut text = "# a comment\nfrom to\n".to_string();
    (0..400_000).for_each(|i| text.push_str(&format!("{} {}\n", i % 97, i)));
    let read = |text: &str, nodes| {
        std::fs::write(&path, text).unwrap();
        let (mut count, mut sum) = (0, 0u64);
        let result = read::<u32>(&path, nodes, &Weights::None, &Scratch::in_memory(), &mut |from, to, _| {
            count += from.len();
            sum += to.iter().map(|&v| u64::from(v)).sum::<u64>();
            Ok(())
        });
        result.map(|()| (count, sum)).map_err(|e| e.to_string())
    };
    assert_eq!(read(&text, None).unwrap(), (400_000, 400_000 * 399_999 / 2));
    let error = read(&text, Some(399_999)).unwrap_err();
    assert!(error.contains("line 400002: the edge joins nodes 68 and 399999"), "{error}");
    let needs = estimate(&path).unwrap();
    assert!(needs.estimated && needs.edges.abs_diff(400_000) < 40_000, "{needs:?}");
    assert_eq!(read("", None).unwrap(), (0, 0));
    assert_eq!(read("\u{feff}0 1", None).unwrap(), (1, 1));
    assert!(read("0 1\n\n1\n", None).unwrap_err().contains("line 3: two node ids"));
}

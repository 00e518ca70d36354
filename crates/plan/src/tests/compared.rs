//! Runs without and with reused rows beside each other.

use super::*;

/// [`profile`], compared with one whose minibatches reuse rows and cost `factor` times as much.
fn compared(factor: f64) -> Profile {
    let Seconds { sample, sample_host, gather, near, train } = profile().seconds;
    let seconds = Seconds {
        sample: factor * sample,
        sample_host: sample_host.map(|seconds| factor * seconds),
        gather: factor * gather,
        near: factor * near,
        train: factor * train,
    };
    let bytes = Sizes { batch_rows: factor * profile().bytes.batch_rows, ..profile().bytes };
    let rows = ReusedRows { make: 1e-4, moved: 1e6, table: 1e6, ahead: true };
    let layered = Profile { seconds, bytes, reuse: Some(rows), ..profile() };
    Profile { layered: Some(Box::new(layered)), ..profile() }
}

#[test]
fn each_strategy_has_a_row_without_and_one_with_reused_rows() {
    let report = plan(v100(), compared(0.1)).unwrap();
    let rows: Vec<(&str, &str)> = report.strategies.iter().map(|row| (row.name, row.reuse)).collect();
    assert_eq!(rows[..3], [("sequential", "none"), ("sequential", "layered"), ("pipelined", "none")]);
    assert_eq!(rows.len(), 8);
    // the rows are those of plans with one profile
    let exact = plan(v100(), profile()).unwrap();
    let layered = plan(v100(), *compared(0.1).layered.unwrap()).unwrap();
    let both = exact.strategies.iter().zip(&layered.strategies).flat_map(|(a, b)| [a, b]);
    assert!(report.strategies.iter().eq(both), "{report}");
    let text = report.to_string();
    assert!(text.contains("time-sharing, layered ") && text.contains("historical: not predicted"), "{text}");
    assert!(text.contains("with reused rows: sample 0.64 ms, gather 3.60 ms, train 2.50 ms"), "{text}");
    let repeated = serde_json::to_string(&report.profile).unwrap();
    let repeated: Profile = serde_json::from_str(&repeated).unwrap();
    assert_eq!(plan(v100(), repeated).unwrap(), report, "the profile in the report gives the same plan");
}

#[test]
fn reused_rows_are_recommended_only_if_they_are_clearly_faster() {
    let best = plan(v100(), compared(0.1)).unwrap().recommendation.unwrap();
    assert_eq!(best.reuse, "layered");
    assert!(best.command.contains(" --reuse layered"), "{best:?}");
    assert!(
        best.reason.contains("(without: ") && best.reason.contains("within its staleness bound"),
        "{best:?}"
    );
    let best = plan(v100(), compared(0.95)).unwrap().recommendation.unwrap();
    assert_eq!(best.reuse, "none");
    assert!(best.command.contains(" --reuse none") && best.reason.contains("not clearly less"), "{best:?}");
    // without another row that fits
    let mut only = compared(0.95);
    only.bytes.train = 1e12;
    assert_eq!(plan(v100(), only).unwrap().recommendation.unwrap().reuse, "layered");
    // with one profile, there is nothing to compare
    let alone = plan(v100(), profile()).unwrap().recommendation.unwrap();
    assert!(!alone.command.contains("--reuse"), "{alone:?}");
    let mut request = Request::default();
    request.set_device_counts("1,8").unwrap();
    let report = plan_run(v100(), compared(0.1), &request).unwrap();
    assert!(report.sweep.iter().all(|row| row.reuse == Some("layered")), "{report}");
    assert!(
        report.to_string().contains("best time-sharing, layered")
            || report.to_string().contains(", layered\n")
    );
}

#[test]
fn a_profile_to_compare_must_have_reused_rows() {
    for wrong in [
        Profile { layered: Some(Box::new(profile())), ..profile() },
        Profile { layered: Some(Box::new(compared(0.1))), ..profile() },
    ] {
        let message = plan(v100(), wrong).unwrap_err().to_string();
        assert!(message.contains("layered it is the profile of the same run"), "{message}");
    }
    let mut negative = compared(0.1);
    negative.layered.as_mut().unwrap().seconds.train = -1.0;
    let message = plan(v100(), negative).unwrap_err().to_string();
    assert!(message.contains("layered.seconds.train"), "{message}");
}

#[test]
fn both_are_measured_unless_the_option_is_given() {
    let mut config = TrainConfig::default();
    compare_reuse(&mut config, &["reuse"]);
    assert_eq!(config.reuse, "none");
    let (data, mut config) = small(600, vec![4, 3]);
    compare_reuse(&mut config, &["hidden"]);
    let profile = measure(&config, &data).unwrap();
    let layered = profile.layered.as_deref().unwrap();
    assert!(profile.reuse.is_none() && layered.reuse.is_some());
    let (exact, reused) = (&profile.bytes, &layered.bytes);
    // rows of hot nodes are not gathered, nor their neighbours drawn
    assert!(reused.batch_rows < exact.batch_rows && reused.batch < exact.batch, "{reused:?} {exact:?}");
    assert!(reused.train > 0.0 && exact.train > 0.0);
    assert_eq!((profile.check(), &profile.without_reuse), (Ok(()), &None));
    // a model of one layer has no rows to reuse
    let (data, mut config) = small(600, vec![4]);
    compare_reuse(&mut config, &[]);
    let profile = measure(&config, &data).unwrap();
    assert!(profile.layered.is_none(), "{profile:?}");
    let text = plan(Hardware::find("laptop").unwrap(), profile).unwrap().to_string();
    assert!(
        text.contains("no strategy is predicted with reused rows: ") && text.contains("--layers 2"),
        "{text}"
    );
}

#[test]
fn options_of_reuse_are_in_the_commands_that_read_them() {
    let of = |factor| {
        let request = request(&[("reuse", "auto"), ("super_batch", "4")]);
        plan_run(v100(), compared(factor), &request).unwrap().recommendation.unwrap().command
    };
    let (layered, exact) = (of(0.1), of(0.95));
    assert!(layered.contains("--reuse layered") && layered.contains("--super-batch=4"), "{layered}");
    assert!(exact.contains("--reuse none") && !exact.contains("--super-batch"), "{exact}");
    assert!(!layered.contains("--reuse=auto"), "{layered}");
}

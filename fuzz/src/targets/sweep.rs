//! Record of a sweep, `sweep.json`, and the plan of its trials.

use graphmill_engine::sweep::{Plan, SweepRecord};

use super::{Answer, one_file};

pub(super) const TOKENS: &[&[u8]] = &[
    b"{\"config\": {}",
    b"\"tried\": [\"lr=0.001,0.01\"]",
    b"\"lr=log:1e-4..1e-1\"",
    b"\"fanout=5,5|10,10\"",
    b"\"given\": [\"epochs\"]",
    b"\"options\": {\"trials\": 2}",
    b"\"eta\": 3",
    b"\"seed\": 18446744073709551615",
    b"\"rungs\": [1, 3]",
    b"\"trials\": [{\"trial\": 1}]",
    b"\"scores\": [{\"judged\": 1e308}]",
    b"\"best\": 1",
];

/// One input: the text of the file.
pub fn run(data: &[u8]) -> Answer {
    one_file("sweep", "sweep.json", data, data.len(), |path| {
        let dir = path.parent().ok_or("a file without a directory")?;
        let record = SweepRecord::read(dir)?.ok_or("there is no record")?;
        assert_eq!(record.ranked().len(), record.trials.len(), "every trial has a rank");
        record.best();
        Plan::resume(dir)?;
        Ok(())
    })
}

//! Stored aggregates of in-neighbours, `bottom_mean.bin`. The checksum at its end is corrected,
//! unless an option is `raw`.

use graphmill_core::{EdgeOptions, Features, Graph, Result, block::Aggregation, build, features::FeatureData};
use graphmill_data::{bottom_hop::stacked, checksum::checksum, verification::Verify};

use super::Answer;
use crate::{alloc::limited, input::Input, scratch::with_fresh_files};

pub(super) const TOKENS: &[&[u8]] = &[
    b"graphmill bottom hop, version 2\n",
    b"mean 3 2 f32\n",
    b"indptr ",
    b"indices ",
    b"features ",
    b"\0\0\x80\x3f",
    b"\0\0\xc0\x7f",
    b"raw ",
];

/// Name of the file.
pub(crate) const FILE: &str = "bottom_mean.bin";
/// Bytes of the header.
const HEAD: usize = 256;
/// Bytes of the checksum at the end.
const TAIL: usize = 32;

/// One input: options, and the file.
pub fn run(data: &[u8]) -> Answer {
    let mut input = Input::read(data, &[FILE]);
    let (graph, features) = table()?;
    if !input.has("raw") {
        sign(&mut input);
    }
    // A file of other aggregates is replaced.
    with_fresh_files("bottom_hop", &input.files, |dir| {
        let make = || stacked(&graph, &features, Aggregation::Mean, Some(dir), Verify::All);
        let made = limited(input.unpacked, make)?;
        let (FeatureData::F32(all), FeatureData::F32(own)) = (&made.data, &features.data) else {
            unreachable!("the number type is that of the features")
        };
        assert_eq!(all.len(), 2 * own.len(), "a row and an aggregate for each node");
        Ok(())
    })
}

/// The graph and the features that the seeds are of.
///
/// # Errors
/// None in practice: the graph is sound.
pub fn table() -> Result<(Graph, Features)> {
    let graph = build(3, &[0, 1, 2, 0], &[1, 2, 0, 2], EdgeOptions::DIRECTED)?;
    Ok((graph, Features::f32(2, vec![0.5, 1.0, 2.0, -3.0, 4.0, 5.0])))
}

/// Enters the checksum of the bytes behind the header.
fn sign(input: &mut Input) {
    let Some((_, bytes)) = input.files.first_mut() else { return };
    let Some(end) = bytes.len().checked_sub(TAIL).filter(|end| *end >= HEAD) else { return };
    let sum = checksum(&bytes[HEAD..end]);
    bytes.to_mut()[end..].copy_from_slice(sum.as_bytes());
}

//! Sums over several devices: simulated ones, or, with `GRAPHMILL_TEST_DEVICE`, NVIDIA devices if
//! there are two and NCCL.

use std::sync::Arc;

use graphmill_core::keyed::{Stream, key};
use graphmill_cuda::{AllReduce, Cuda, Device, Error, driver::Arithmetic, driver::shim::Options};
use graphmill_nn::{Backend, Matrix, backend::ElementOps};

use crate::device;

/// Backends of this many devices and their sums, if both are available.
fn sums_over(count: usize) -> Option<(Vec<Cuda>, AllReduce)> {
    if device::count() < count {
        return None;
    }
    let cudas: Vec<Cuda> = (0..count)
        .map(|index| {
            let device: Arc<Device> = device::device(index, Options::default());
            Cuda::new(&device, Arithmetic::F32).unwrap()
        })
        .collect();
    match AllReduce::new(cudas.iter().map(|cuda| cuda.queue().clone()).collect()) {
        Ok(all) => Some((cudas, all)),
        Err(Error::Unavailable(_)) => None,
        Err(error) => panic!("{error}"),
    }
}

const SHAPES: [(usize, usize); 4] = [(3, 5), (1, 1), (0, 4), (70, 33)];

fn random(rows: usize, cols: usize, seed: u64) -> Matrix {
    let mut draws = Stream::new(key(&[seed, 1]));
    let data: Vec<f32> = (0..rows * cols).map(|_| draws.normal() as f32).collect();
    Matrix::from_slice(rows, cols, &data)
}

#[test]
fn every_rank_receives_sums_in_rank_order() {
    for count in 1..=4 {
        let Some((cudas, all)) = sums_over(count) else { return };
        assert_eq!(all.num_ranks(), count);
        let mut ranks: Vec<Vec<Matrix>> = (0..count)
            .map(|rank| {
                SHAPES.iter().zip(0..).map(|(&(r, c), i)| random(r, c, 10 * rank as u64 + i)).collect()
            })
            .collect();
        let expected: Vec<Vec<f32>> = (0..SHAPES.len())
            .map(|i| {
                let mut sum = ranks[0][i].view().host().to_vec();
                for rank in &ranks[1..] {
                    sum.iter_mut().zip(rank[i].view().host()).for_each(|(sum, x)| *sum += x);
                }
                sum
            })
            .collect();
        // work queued before is part of the sums, even if it is recorded
        for (cuda, rank) in cudas.iter().zip(&mut ranks) {
            cuda.begin_replayable_step();
            rank.iter_mut().for_each(|matrix| cuda.scale(2.0, matrix.view_mut()));
        }
        let views = ranks.iter_mut().map(|rank| rank.iter_mut().map(Matrix::view_mut).collect()).collect();
        all.sum(views).unwrap();
        for (cuda, rank) in cudas.iter().zip(&mut ranks) {
            rank.iter_mut().for_each(|matrix| cuda.scale(0.5, matrix.view_mut()));
            cuda.end_replayable_step();
            cuda.check().unwrap();
        }
        for rank in &ranks {
            for (matrix, expected) in rank.iter().zip(&expected) {
                let is_shim = std::env::var_os("GRAPHMILL_TEST_DEVICE").is_none();
                let got = matrix.view().host();
                if is_shim || count <= 2 {
                    // the sum of two numbers does not depend on their order
                    assert_eq!(got, expected);
                }
                assert!(got.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-5), "{count} devices");
            }
        }
        for (a, b) in ranks[0].iter().zip(&ranks[count - 1]) {
            assert_eq!(a.view().host(), b.view().host(), "ranks differ");
        }
    }
}

#[test]
#[should_panic(expected = "matrices of equal shapes")]
fn unequal_shapes_panic() {
    let Some((_cudas, all)) = sums_over(2) else { panic!("matrices of equal shapes") };
    let (mut one, mut other) = (random(2, 3, 1), random(3, 3, 2));
    let _ = all.sum(vec![vec![one.view_mut()], vec![other.view_mut()]]);
}

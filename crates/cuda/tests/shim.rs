//! The simulated device: it runs kernels correctly in every order, and reports calls that a real
//! device must not receive.

#![allow(unsafe_code, reason = "device memory and kernels")]

use std::{ffi::c_void, sync::Arc};

use graphmill_cuda::{
    Error,
    driver::{
        Address, Driver, Shape, Stream,
        shim::{self, Options, Order, Shim},
    },
};
use half::{bf16, f16};

const ORDERS: [Order; 4] = [Order::Forward, Order::Reverse, Order::Shuffled(1), Order::Shuffled(2)];

/// Simulated device with this order.
fn device(order: Order) -> Arc<Shim> {
    shim::open(0, Options { memory: 1 << 24, guard: true, order, ..Options::default() })
}

fn upload<T: bytemuck::Pod>(device: &Shim, values: &[T]) -> Address {
    let bytes: &[u8] = bytemuck::cast_slice(values);
    let at = device.allocate(bytes.len()).unwrap();
    // SAFETY: this many bytes were just allocated.
    unsafe { device.upload(bytes.as_ptr(), at, bytes.len(), Stream(0)).unwrap() };
    at
}

fn download<T: bytemuck::Pod>(device: &Shim, at: Address, count: usize) -> Vec<T> {
    let mut values = vec![T::zeroed(); count];
    let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut values);
    // SAFETY: the driver rejects addresses outside allocations.
    unsafe { device.download(at, bytes.as_mut_ptr(), bytes.len(), Stream(0)).unwrap() };
    values
}

/// Launches a kernel with values of 4 or 8 bytes.
fn launch(
    device: &Shim,
    name: &str,
    blocks: u32,
    threads: u32,
    shared: u32,
    values: &[Value],
) -> Result<(), Error> {
    let mut values = values.to_vec();
    let mut arguments: Vec<*mut c_void> = values
        .iter_mut()
        .map(|value| match value {
            Value::At(at) => (&raw mut at.0).cast(),
            Value::Word(word) => (&raw mut *word).cast(),
            Value::Long(long) => (&raw mut *long).cast(),
        })
        .collect();
    let shape = Shape { grid: [blocks, 1, 1], block: [threads, 1, 1], shared };
    // SAFETY: the tests pass the arguments of the kernels.
    unsafe { device.launch(device.kernel(name)?, shape, &mut arguments, Stream(0)) }
}

#[derive(Clone, Copy)]
enum Value {
    At(Address),
    Word(u32),
    Long(u64),
}
use Value::{At, Long, Word};

/// Error message of a rejected launch.
fn refusal(result: Result<(), Error>) -> String {
    match result.unwrap_err() {
        Error::Driver { message, .. } => message,
        other => panic!("{other}"),
    }
}

#[test]
fn block_sums_do_not_depend_on_the_order() {
    let values: Vec<f32> =
        (0..100_003_u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 8) as f32 / 1e6).collect();
    let exact: f64 = values.iter().map(|&value| f64::from(value)).sum();
    for threads in [32, 256, 1024] {
        let mut first: Option<Vec<u32>> = None;
        for order in ORDERS {
            let device = device(order);
            let (at, sums) = (upload(&device, &values), device.allocate(4 * 7).unwrap());
            let given = [At(at), Long(values.len() as u64), At(sums)];
            launch(&device, "selftest_sum", 7, threads, 0, &given).unwrap();
            let sums: Vec<f32> = download(&device, sums, 7);
            let sum: f64 = sums.iter().map(|&sum| f64::from(sum)).sum();
            assert!((sum / exact - 1.0).abs() < 1e-5, "{sum} is not {exact}");
            let bits: Vec<u32> = sums.iter().map(|sum| sum.to_bits()).collect();
            assert_eq!(*first.get_or_insert_with(|| bits.clone()), bits, "{order:?}");
        }
    }
}

/// Blocks run one after the other here, so a block only ever sees tiles with known totals. Other
/// states are written by hand.
#[test]
fn look_back_passes_tiles_with_local_sums_only() {
    const OWN: u64 = 1 << 62;
    const ALL: u64 = 2 << 62;
    for tiles in [0usize, 1, 2, 31, 32, 33, 64, 65, 100] {
        // the tiles after this one have only their local sums
        for known in [0, 1, tiles / 2, tiles.saturating_sub(33), tiles.saturating_sub(1)] {
            let sums: Vec<u64> = (0..tiles as u64).map(|tile| tile * tile % 13 + (tile << 20)).collect();
            let mut before = 0;
            let mut words: Vec<u64> = Vec::new();
            for (tile, sum) in sums.iter().enumerate() {
                before += sum;
                words.push(if tile <= known { ALL | before } else { OWN | sum });
            }
            words.push(0);
            for order in ORDERS {
                let device = device(order);
                let (one, other) = (upload(&device, &words), upload(&device, &words));
                let found = upload(&device, &[0u64; 2]);
                let given = [At(one), At(other), Long(tiles as u64), Long(5), At(found)];
                launch(&device, "selftest_look_back", 1, 256, 0, &given).unwrap();
                assert_eq!(download::<u64>(&device, found, 2), [before; 2], "{tiles} tiles, {known} known");
                assert_eq!(download::<u64>(&device, one, tiles + 1)[tiles], ALL | (before + 5));
                if tiles > 0 {
                    assert_eq!(download::<u64>(&device, other, tiles + 1)[tiles], ALL | (before + 5));
                }
            }
        }
    }
}

#[test]
fn warp_scans_are_correct() {
    let values: Vec<u32> = (0..1000_u32).map(|i| i * i % 17).collect();
    let expected: Vec<u32> = values
        .chunks(32)
        .flat_map(|warp| {
            warp.iter().scan(0, |sum, value| {
                *sum += value;
                Some(*sum)
            })
        })
        .collect();
    for order in ORDERS {
        let device = device(order);
        let (at, sums) = (upload(&device, &values), device.allocate(4000).unwrap());
        launch(&device, "selftest_warp_scan", 3, 128, 0, &[At(at), Word(1000), At(sums)]).unwrap();
        assert_eq!(download::<u32>(&device, sums, 1000), expected, "{order:?}");
    }
}

#[test]
fn shared_memory_is_shared_by_a_block() {
    for (order, threads) in ORDERS.into_iter().zip([1, 33, 256, 1024_u32]) {
        let device = device(order);
        let at = upload(&device, &(0..5 * threads).collect::<Vec<_>>());
        launch(&device, "selftest_reverse", 5, threads, 4 * threads, &[At(at)]).unwrap();
        let expected: Vec<u32> =
            (0..5).flat_map(|block| (block * threads..(block + 1) * threads).rev()).collect();
        assert_eq!(download::<u32>(&device, at, 5 * threads as usize), expected, "{order:?}");
    }
}

#[test]
fn ballots_and_atomics_are_correct() {
    let words: Vec<u32> = (3..1234_u32).map(|i| i.wrapping_mul(0x9e37_79b9)).collect();
    let odd = words.iter().filter(|&word| word % 2 == 1).count() as u64;
    let (least, most) = (*words.iter().min().unwrap(), *words.iter().max().unwrap());
    for order in ORDERS {
        let device = device(order);
        let at = upload(&device, &words);
        let counts = upload(&device, &[0, 0, u64::MAX, 0]);
        launch(&device, "selftest_count", 4, 64, 0, &[At(at), Word(words.len() as u32), At(counts)]).unwrap();
        let found: Vec<u64> = download(&device, counts, 4);
        assert_eq!(found, [odd, odd, u64::from(least), u64::from(most)], "{order:?}");
    }
}

#[test]
fn sixteen_bit_floats_round_to_nearest_even() {
    // every half, its neighbours in f32 and the midpoint between it and the next; then all
    // magnitudes
    let mut values: Vec<f32> = (0..=u16::MAX)
        .flat_map(|bits| {
            let bits = f16::from_bits(bits).to_f32().to_bits();
            [bits, bits.wrapping_add(1), bits.wrapping_sub(1), bits ^ 0x1000, (bits ^ 0x1000) + 1]
        })
        .map(f32::from_bits)
        .collect();
    values.extend((0..=u16::MAX).map(|high| f32::from_bits(u32::from(high) << 16 | 0x8000)));
    values.extend((0..=u16::MAX).map(|high| f32::from_bits(u32::from(high) << 16 | 0x7fff)));
    let count = values.len();
    let device = device(Order::Forward);
    let at = upload(&device, &values);
    let [halves, bf16s] = [(); 2].map(|()| device.allocate(2 * count).unwrap());
    let [of_halves, of_bf16s] = [(); 2].map(|()| device.allocate(4 * count).unwrap());
    let given = [At(at), Word(count as u32), At(halves), At(of_halves), At(bf16s), At(of_bf16s)];
    launch(&device, "selftest_floats", 8, 128, 0, &given).unwrap();
    let (halves, of_halves) =
        (download::<u16>(&device, halves, count), download::<f32>(&device, of_halves, count));
    let (bf16s, of_bf16s) =
        (download::<u16>(&device, bf16s, count), download::<f32>(&device, of_bf16s, count));
    for (i, &value) in values.iter().enumerate() {
        let (half, bf16) = (f16::from_f32(value), bf16::from_f32(value));
        if value.is_nan() {
            assert!(of_halves[i].is_nan() && of_bf16s[i].is_nan(), "{:#x}", value.to_bits());
            continue;
        }
        assert_eq!(halves[i], half.to_bits(), "{value:e}");
        assert_eq!(of_halves[i].to_bits(), half.to_f32().to_bits(), "{value:e}");
        assert_eq!(bf16s[i], bf16.to_bits(), "{value:e}");
        assert_eq!(of_bf16s[i].to_bits(), bf16.to_f32().to_bits(), "{value:e}");
    }
}

#[test]
fn orders_expose_races() {
    let last = |order| {
        let device = device(order);
        let at = device.allocate(4).unwrap();
        launch(&device, "faulty_race", 64, 64, 0, &[At(at)]).unwrap();
        download::<u32>(&device, at, 1)[0]
    };
    assert_eq!(last(Order::Forward), 4095);
    assert_eq!(last(Order::Reverse), 0);
    assert_ne!(last(Order::Shuffled(1)), last(Order::Shuffled(2)));
    assert_eq!(last(Order::Shuffled(1)), last(Order::Shuffled(1)));
}

#[test]
fn barriers_and_shuffles_that_miss_threads_are_reported() {
    for order in ORDERS {
        let device = device(order);
        let words = upload(&device, &[0_u32; 32]);
        let message = refusal(launch(&device, "faulty_barrier", 2, 64, 0, &[]));
        assert!(message.contains("kernel faulty_barrier: block ("), "{message}");
        assert!(message.contains("only 32 of the block's 64 threads reach"), "{message}");
        let message = refusal(launch(&device, "faulty_mixture", 1, 32, 0, &[]));
        assert!(message.contains("wait at __syncthreads"), "{message}");
        let message = refusal(launch(&device, "faulty_shuffle", 1, 32, 0, &[At(words)]));
        assert!(message.contains("names lanes that have ended (0xaaaaaaaa)"), "{message}");
        // the shim continues after a fault
        launch(&device, "selftest_reverse", 1, 32, 128, &[At(words)]).unwrap();
    }
}

#[test]
fn shuffles_with_missing_lanes_are_reported() {
    let device = device(Order::Forward);
    let (values, sums) = (upload(&device, &[1.0_f32; 16]), device.allocate(4).unwrap());
    let message = refusal(launch(&device, "selftest_sum", 1, 16, 0, &[At(values), Long(16), At(sums)]));
    assert!(message.contains("or are not there"), "{message}");
}

#[test]
fn addresses_are_checked() {
    let device = device(Order::Forward);
    let (words, found) = (upload(&device, &[7_u32; 12]), device.allocate(4).unwrap());
    launch(&device, "faulty_read", 1, 1, 0, &[At(words), Word(11), At(found)]).unwrap();
    assert_eq!(download::<u32>(&device, found, 1), [7]);
    let message = refusal(launch(&device, "faulty_read", 1, 1, 0, &[At(words), Word(12), At(found)]));
    assert!(message.contains("byte 48 of memory of 48 bytes"), "{message}");
    let message = refusal(launch(&device, "faulty_shared", 1, 32, 32, &[]));
    assert!(message.contains("writes 0 bytes behind the 32 bytes"), "{message}");
    let message = refusal(launch(&device, "faulty_index", 1, 8, 0, &[Word(8), At(found)]));
    assert!(message.contains("faulty.cu:") && message.contains("index outside its array"), "{message}");
    let message = refusal(launch(&device, "faulty_alignment", 1, 1, 0, &[At(words), At(found)]));
    assert!(message.contains("faulty.cu:") && message.contains("alignment"), "{message}");
    let message = refusal(launch(&device, "faulty_stack", 1, 1, 0, &[At(found)]));
    assert!(message.contains("touches the address"), "{message}");
    // SAFETY: nothing is queued.
    unsafe { device.free(words) };
    let message = refusal(launch(&device, "faulty_read", 1, 1, 0, &[At(words), Word(0), At(found)]));
    assert!(message.contains("touches the address"), "{message}");
    // SAFETY: rejected before any access.
    let copied = unsafe { device.copy(found, words, 4, Stream(0)) };
    assert!(refusal(copied).contains("4 bytes at"));
}

#[test]
fn invalid_launches_are_rejected() {
    let device = device(Order::Forward);
    assert!(refusal(launch(&device, "no_such_kernel", 1, 1, 0, &[])).contains("unknown kernel"));
    assert!(refusal(launch(&device, "faulty_race", 1, 1, 0, &[])).contains("0 arguments for 1 parameters"));
    for (blocks, threads, shared) in [(0, 1, 0), (1, 0, 0), (1, 1025, 0), (1, 32, 1 << 20)] {
        let message = refusal(launch(&device, "faulty_barrier", blocks, threads, shared, &[]));
        assert!(message.contains("no device supports the shape"), "{message}");
    }
}

#[test]
fn memory_has_a_budget_and_starts_as_nan() {
    for guard in [true, false] {
        let device =
            shim::open(1, Options { memory: 1000, guard, order: Order::Forward, ..Options::default() });
        let first = device.allocate(600).unwrap();
        assert!(download::<f32>(&device, first, 150).iter().all(|value| value.is_nan()));
        assert_eq!(device.memory().unwrap(), (400, 1000));
        let error = device.allocate(401).unwrap_err();
        let expected =
            Error::OutOfMemory { device: "shim:1".to_owned(), bytes: 401, free: 400, budget: 1000 };
        assert_eq!(error, expected);
        let host = device.allocate_host(5000).unwrap();
        assert_eq!(download::<u8>(&device, host.address, 5000), [0; 5000]);
        // SAFETY: nothing is queued.
        unsafe {
            device.free(first);
            device.free_host(host);
        }
        assert_eq!(device.memory().unwrap(), (1000, 1000));
    }
}

#[test]
fn registered_memory_is_read_in_place() {
    let device = device(Order::Forward);
    let words = [5_u32, 6, 7];
    // SAFETY: the words outlive their use here.
    let at = unsafe { device.register(words.as_ptr().cast(), 12).unwrap() };
    let found = device.allocate(4).unwrap();
    launch(&device, "faulty_read", 1, 1, 0, &[At(at), Word(2), At(found)]).unwrap();
    assert_eq!(download::<u32>(&device, found, 1), [7]);
    // SAFETY: as above.
    unsafe { device.unregister(words.as_ptr().cast()) };
}

#[test]
fn threads_launch_concurrently() {
    let device = device(Order::Shuffled(3));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let at = upload(&device, &(0..2560_u32).collect::<Vec<_>>());
                for _ in 0..21 {
                    launch(&device, "selftest_reverse", 10, 256, 1024, &[At(at)]).unwrap();
                }
                let expected: Vec<u32> =
                    (0..10).flat_map(|block| (block * 256..(block + 1) * 256).rev()).collect();
                assert_eq!(download::<u32>(&device, at, 2560), expected);
            });
        }
    });
}

#[test]
fn events_measure_time() {
    let device = device(Order::Forward);
    let stream = device.stream(false).unwrap();
    let [from, to] = [device.event(true).unwrap(), device.event(true).unwrap()];
    assert!(device.seconds_between(from, to).is_err());
    device.record(from, stream).unwrap();
    device.wait(stream, from).unwrap();
    device.record(to, stream).unwrap();
    device.synchronize(stream).unwrap();
    assert!(device.seconds_between(from, to).unwrap() >= 0.0);
}

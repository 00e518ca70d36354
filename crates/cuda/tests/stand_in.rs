//! Calls into the vendor's libraries, against stand-in libraries: the order of calls and of their
//! arguments, contexts, errors. The vendor's own libraries are tested on machines with a device.
//!
//! A library is loaded once per process, so every test runs in a separate process: this program
//! again, with the environment of the test.

#![allow(unsafe_code, reason = "device memory and kernels")]

use std::{
    env,
    ffi::c_void,
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use graphmill_core::Matrix;
use graphmill_cuda::{
    AllReduce, Device, Error, Queue,
    driver::{Address, Arithmetic, Driver, Product, Shape, Stream, nvidia},
    queue::Memory,
};

/// Returns true in the process of a test; otherwise runs that process. `words` configure the
/// stand-in.
fn is_own_process(name: &str, cuda: bool, cublas: &str, words: &str) -> bool {
    if env::var_os("GRAPHMILL_STAND_IN").is_some() {
        return true;
    }
    let mut command = Command::new(env::current_exe().unwrap());
    command.args([&format!("stand_in::{name}"), "--exact", "--nocapture"]).env("GRAPHMILL_STAND_IN", words);
    let path = if cuda { format!("{}:{cublas}", library("CUDA")) } else { cublas.to_owned() };
    if words.contains("nccl") {
        command.env("GRAPHMILL_CUDA_PATH", env!("GRAPHMILL_STAND_IN_NCCL"));
    }
    let output = command.env("LD_LIBRARY_PATH", path).output().unwrap();
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
    false
}

/// Directory of a stand-in.
fn library(name: &str) -> &'static str {
    if name == "CUDA" { env!("GRAPHMILL_STAND_IN_CUDA") } else { env!("GRAPHMILL_STAND_IN_CUBLAS") }
}

/// A product of two single values.
const ONE: Product = Product {
    m: 1,
    n: 1,
    k: 1,
    a: Address(0),
    lda: 1,
    transpose_a: false,
    b: Address(0),
    ldb: 1,
    transpose_b: false,
    beta: 0.0,
    c: Address(0),
    ldc: 1,
    batch: 1,
    strides: [1; 3],
    arithmetic: Arithmetic::F32,
};

/// Reason why a device is unavailable.
fn refusal(index: usize) -> String {
    let Err(Error::Unavailable(why)) = nvidia::open(index) else { panic!("the device opened") };
    why
}

fn upload(device: &dyn Driver, values: &[f32], stream: Stream) -> Address {
    let at = device.allocate(4 * values.len()).unwrap();
    // SAFETY: this many bytes were just allocated.
    unsafe { device.upload(values.as_ptr().cast(), at, 4 * values.len(), stream).unwrap() };
    at
}

fn download<T: bytemuck::Pod>(device: &dyn Driver, at: Address, count: usize, stream: Stream) -> Vec<T> {
    let mut values = vec![T::zeroed(); count];
    // SAFETY: the tests read only their allocations.
    unsafe { device.download(at, values.as_mut_ptr().cast(), size_of::<T>() * count, stream).unwrap() };
    device.synchronize(stream).unwrap();
    values
}

#[test]
fn queued_work_runs() {
    if !is_own_process("queued_work_runs", true, "", "") {
        return;
    }
    assert_eq!(nvidia::count().unwrap(), 2);
    let device = nvidia::open(1).unwrap();
    let properties = device.properties().clone();
    assert_eq!((properties.name.as_str(), properties.capability), ("stand-in 1", (8, 0)));
    assert_eq!((properties.memory, properties.multiprocessors, properties.shared), (64 << 20, 2, 163 << 10));
    let stream = device.stream(false).unwrap();
    let [from, to] = [device.event(true).unwrap(), device.event(true).unwrap()];
    device.record(from, stream).unwrap();

    let threads = 1024_u32;
    let words = device.allocate(4 * threads as usize).unwrap();
    let host = device.allocate_host(4 * threads as usize).unwrap();
    // SAFETY: memory of these sizes; it was zeroed, and no other reference exists.
    let numbers = unsafe { std::slice::from_raw_parts_mut(host.pointer.cast::<u32>(), threads as usize) };
    assert!(numbers.iter().all(|&number| number == 0));
    numbers.iter_mut().zip(0..).for_each(|(number, i)| *number = i);
    // SAFETY: as above; the kernel takes one pointer.
    unsafe {
        device.fill(words, 7, threads as usize, stream).unwrap();
        assert_eq!(download::<u32>(&*device, words, 1, stream), [7]);
        device.upload(host.pointer, words, 4 * threads as usize, stream).unwrap();
        let kernel = device.kernel("selftest_reverse").unwrap();
        // above the default limit of kernels, and below it again
        for shared in [160 << 10, 4 * threads, 100 << 10] {
            let shape = Shape { grid: [1; 3], block: [threads, 1, 1], shared };
            let mut at = words;
            device.launch(kernel, shape, &mut [(&raw mut at.0).cast::<c_void>()], stream).unwrap();
        }
    }
    device.wait(stream, from).unwrap();
    device.record(to, stream).unwrap();
    assert!(device.seconds_between(from, to).unwrap() >= 0.0);
    let reversed: Vec<u32> = (0..threads).rev().collect();
    assert_eq!(download::<u32>(&*device, words, threads as usize, stream), reversed);

    // SAFETY: registered memory outlives its use; the rest as above.
    unsafe {
        let mine = [1_u32, 2, 3];
        let at = device.register(mine.as_ptr().cast(), 12).unwrap();
        device.copy(at, words, 12, stream).unwrap();
        assert_eq!(download::<u32>(&*device, words, 3, stream), mine);
        device.unregister(mine.as_ptr().cast());
        device.free_host(host);
        device.free(words);
    }
    assert_eq!(device.memory().unwrap(), (64 << 20, 64 << 20));
    let error = device.allocate(65 << 20).unwrap_err();
    assert!(matches!(error, Error::OutOfMemory { bytes, free, budget, .. }
        if (bytes, free, budget) == (65 << 20, 64 << 20, 64 << 20)));
    assert!(
        device.enable_peer(0).unwrap() && device.enable_peer(0).unwrap() && device.enable_peer(1).unwrap()
    );
    assert!(device.enable_peer(2).is_err());
    let error = device.kernel("no_such_kernel").unwrap_err().to_string();
    assert_eq!(error, "cuda:1: cuModuleGetFunction failed: unknown kernel \"no_such_kernel\"");
}

#[test]
fn captured_work_runs_when_launched() {
    if !is_own_process("captured_work_runs_when_launched", true, library("CUBLAS"), "") {
        return;
    }
    let device = nvidia::open(0).unwrap();
    let stream = device.stream(false).unwrap();
    let [a, b, c] = [[2.0], [3.0], [5.0]].map(|values| upload(&*device, &values, stream));
    let product = Product { a, b, c, beta: 1.0, ..ONE };
    assert!(device.multiplies(&product) && !device.multiplies(&Product { k: 0, ..product }));
    let words = device.allocate(4096).unwrap();
    let kernel = device.kernel("selftest_reverse").unwrap();
    let shape = Shape { grid: [1; 3], block: [1024, 1, 1], shared: 4096 };
    let numbers: Vec<f32> = (0..1024).map(|i| i as f32).collect();
    // SAFETY: memory of these sizes; the kernel takes one pointer.
    let graph = unsafe {
        // a stream's first product creates the library's handle, which cannot be captured
        assert!(device.product(&product, stream).unwrap());
        let staged = upload(&*device, &numbers, stream);
        device.begin_capture(stream).unwrap();
        device.copy(staged, words, 4096, stream).unwrap();
        device
            .launch(kernel, shape, &mut [(&raw const words.0).cast_mut().cast::<c_void>()], stream)
            .unwrap();
        device.fill(words, 0, 2, stream).unwrap();
        assert!(device.product(&product, stream).unwrap());
        device.end_capture(stream).unwrap()
    };
    assert_eq!(download::<f32>(&*device, c, 1, stream), [11.0], "a capture must not run its work");
    for times in 1..=2 {
        // SAFETY: all memory is allocated
        unsafe { device.launch_graph(graph, stream).unwrap() };
        let got = download::<f32>(&*device, words, 1024, stream);
        assert_eq!((&got[..3], got[1023]), (&[0.0, 0.0, 1021.0][..], 0.0));
        assert_eq!(download::<f32>(&*device, c, 1, stream), [11.0 + 6.0 * times as f32]);
    }
    // a wait invalidates the capture, and the stream accepts work again
    device.begin_capture(stream).unwrap();
    assert!(device.synchronize(stream).is_err());
    let error = device.end_capture(stream).unwrap_err().to_string();
    assert!(error.contains("cuStreamEndCapture failed"), "{error}");
    device.synchronize(stream).unwrap();
    // SAFETY: the graph is not used again
    unsafe { device.destroy_graph(graph) };
    // SAFETY: rejected
    assert!(unsafe { device.launch_graph(graph, stream) }.is_err());
}

#[test]
fn drivers_without_capture_are_reported() {
    if is_own_process("drivers_without_capture_are_reported", true, "", "no-graphs") {
        let device = nvidia::open(0).unwrap();
        let stream = device.stream(false).unwrap();
        let error = device.begin_capture(stream).unwrap_err().to_string();
        assert!(error.contains("cuStreamBeginCapture failed"), "{error}");
        device.synchronize(stream).unwrap();
    }
}

/// Values of two devices, summed by the library.
fn sums() -> (Arc<AllReduce>, graphmill_cuda::Result<[Vec<f32>; 2]>) {
    let queues: Vec<Arc<Queue>> = (0..2)
        .map(|index| Queue::compute(&Device::new(nvidia::open(index).unwrap(), index, 0).unwrap()).unwrap())
        .collect();
    let all = Arc::new(AllReduce::new(queues.clone()).unwrap());
    let place = |matrix: &mut Matrix, queue: &Arc<Queue>| {
        matrix.view_mut().on_device(&Memory(queue.clone()), true).unwrap();
    };
    let mut one = Matrix::from_slice(1, 3, &[1.0, 2.0, 3.0]);
    let mut other = Matrix::from_slice(1, 3, &[0.5, -2.0, 1e-3]);
    place(&mut one, &queues[0]);
    place(&mut other, &queues[1]);
    let summed = all.sum(vec![vec![one.view_mut()], vec![other.view_mut()]]);
    (all, summed.map(|()| [one, other].map(|matrix| matrix.view().host().to_vec())))
}

#[test]
fn nccl_sums_over_devices() {
    if is_own_process("nccl_sums_over_devices", true, "", "nccl") {
        let (all, summed) = sums();
        assert_eq!((all.name(), all.num_ranks()), ("NCCL 2.27.5", 2));
        let expected = vec![1.5, 0.0, 3.001];
        assert_eq!(summed.unwrap(), [expected.clone(), expected]);
    }
}

#[test]
fn memory_is_not_freed_between_the_kernels_of_a_group() {
    if !is_own_process("memory_is_not_freed_between_the_kernels_of_a_group", true, library("CUBLAS"), "nccl")
    {
        return;
    }
    // the stand-ins abort the process if it is
    let (all, summed) = sums();
    summed.unwrap();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let device = nvidia::open(0).unwrap();
            let mine = [1_u8; 100];
            while !over.load(Relaxed) {
                let stream = device.stream(false).unwrap();
                let [a, b, c] = [[2.0], [3.0], [5.0]].map(|values| upload(&*device, &values, stream));
                let host = device.allocate_host(64).unwrap();
                // SAFETY: memory of this thread, freed after its work is done
                unsafe {
                    assert!(device.product(&Product { a, b, c, ..ONE }, stream).unwrap());
                    device.register(mine.as_ptr(), 100).unwrap();
                    device.unregister(mine.as_ptr());
                    device.free_host(host);
                    for at in [a, b, c] {
                        device.free(at);
                    }
                    device.destroy_stream(stream);
                }
            }
        });
        for _ in 0..20 {
            all.sum(vec![Vec::new(), Vec::new()]).unwrap();
        }
        over.store(true, Relaxed);
    });
}

#[test]
fn destroyed_streams_free_their_workspace() {
    if !is_own_process("destroyed_streams_free_their_workspace", true, library("CUBLAS"), "") {
        return;
    }
    let device = nvidia::open(0).unwrap();
    for _ in 0..20 {
        // a new stream may have the name of a destroyed one, but must not have its handle
        let stream = device.stream(false).unwrap();
        let [a, b, c] = [[2.0], [3.0], [5.0]].map(|values| upload(&*device, &values, stream));
        // SAFETY: one value each, freed after the work is done
        unsafe {
            assert!(device.product(&Product { a, b, c, ..ONE }, stream).unwrap());
            assert_eq!(download::<f32>(&*device, c, 1, stream), [6.0]);
            for at in [a, b, c] {
                device.free(at);
            }
            device.destroy_stream(stream);
        }
    }
    let (free, all) = device.memory().unwrap();
    assert_eq!(free, all, "a workspace was not freed");
}

#[test]
fn nccl_errors_are_reported() {
    for call in ["AllReduce", "GroupEnd"] {
        let words = format!("nccl-fails={call}");
        if is_own_process("nccl_errors_are_reported", true, "", &words) {
            let (all, summed) = sums();
            let error = summed.unwrap_err().to_string();
            assert!(error.starts_with("NCCL: nccl") && error.ends_with("failed: invalid usage"), "{error}");
            // the state of pending work is unknown after a failure
            let empty = all.sum(vec![Vec::new(), Vec::new()]).unwrap_err().to_string();
            assert!(empty.contains("an earlier call failed"), "{empty}");
            return;
        }
    }
}

#[test]
fn failed_communicators_are_reported() {
    if is_own_process("failed_communicators_are_reported", true, "", "nccl-fails=CommInitAll") {
        let Err(error) = nvidia::open(0).unwrap().collective(&[0, 1]) else { panic!("it did not fail") };
        assert_eq!(error.to_string(), "NCCL: ncclCommInitAll failed: invalid usage");
    }
}

#[test]
fn a_missing_nccl_is_reported() {
    if is_own_process("a_missing_nccl_is_reported", true, "", "none") {
        match nvidia::open(0).unwrap().collective(&[0, 1]) {
            Err(Error::Unavailable(why)) => {
                assert!(
                    why.contains("no NCCL was found (libnccl.so.2); install it, or set GRAPHMILL_CUDA_PATH"),
                    "{why}"
                );
            }
            // this machine has the library but no device for it
            Err(_) => {}
            Ok(_) => panic!("sums over devices that do not exist"),
        }
    }
}

#[test]
fn every_thread_uses_the_device_context() {
    if !is_own_process("every_thread_uses_the_device_context", true, "", "refuse-read-only no-peers") {
        return;
    }
    let devices: Vec<Arc<dyn Driver>> = (0..2).map(|index| nvidia::open(index).unwrap()).collect();
    assert!(!devices[0].enable_peer(1).unwrap());
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for device in devices.iter().cycle().take(40) {
                    let stream = device.stream(false).unwrap();
                    let at = upload(&**device, &[1.0, 2.0], stream);
                    assert_eq!(download::<f32>(&**device, at, 2, stream), [1.0, 2.0]);
                    // SAFETY: the memory was allocated above, and its work is done.
                    unsafe { device.free(at) };
                }
            });
        }
    });
    let mine = [1_u8; 100];
    // SAFETY: the memory outlives its registration.
    unsafe {
        devices[0].register(mine.as_ptr(), 100).unwrap();
        assert!(
            devices[0]
                .register(mine.as_ptr(), 100)
                .unwrap_err()
                .to_string()
                .contains("page-locking 100 bytes")
        );
        devices[0].unregister(mine.as_ptr());
    }
}

#[test]
fn row_major_products_match_their_definition() {
    if !is_own_process("row_major_products_match_their_definition", true, library("CUBLAS"), "") {
        return;
    }
    check_products();
}

#[test]
fn libraries_load_from_configured_directories() {
    if env::var_os("GRAPHMILL_CUDA_PATH").is_none() {
        let mut command = Command::new(env::current_exe().unwrap());
        command.args(["stand_in::libraries_load_from_configured_directories", "--exact"]);
        command.env("GRAPHMILL_STAND_IN", "").env("LD_LIBRARY_PATH", library("CUDA"));
        let output =
            command.env("GRAPHMILL_CUDA_PATH", format!("/nowhere:{}", library("CUBLAS"))).output().unwrap();
        let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        assert!(output.status.success() && text.contains("1 passed"), "{text}");
        return;
    }
    check_products();
}

/// Compares products of all kinds with their definition.
fn check_products() {
    let device = nvidia::open(0).unwrap();
    let stream = device.stream(false).unwrap();
    let (m, n, k) = (3, 4, 5);
    for case in 0..24 {
        let (transpose_a, transpose_b, batch) =
            (case & 1 == 1, case & 2 == 2, if case & 4 == 4 { 3 } else { 1 });
        let arithmetic = [Arithmetic::F32, Arithmetic::Tf32, Arithmetic::Bf16][case / 8];
        let beta = if case % 3 == 0 { 0.5 } else { 0.0 };
        let (rows_a, columns_a) = if transpose_a { (k, m) } else { (m, k) };
        let (rows_b, columns_b) = if transpose_b { (n, k) } else { (k, n) };
        let (lda, ldb, ldc) = (columns_a + 1, columns_b + 2, n + 3);
        let strides = [rows_a * lda + 1, rows_b * ldb, m * ldc + 2];
        let numbers = |stride: usize, by: usize| -> Vec<f32> {
            (0..stride * batch).map(|i| (i * by % 11) as f32 - 5.0).collect()
        };
        let (a, b, c) = (numbers(strides[0], 7), numbers(strides[1], 3), numbers(strides[2], 5));
        let mut expected = c.clone();
        for one in 0..batch {
            for row in 0..m {
                for column in 0..n {
                    let sum: f32 = (0..k)
                        .map(|i| {
                            let of_a = if transpose_a { i * lda + row } else { row * lda + i };
                            let of_b = if transpose_b { column * ldb + i } else { i * ldb + column };
                            a[one * strides[0] + of_a] * b[one * strides[1] + of_b]
                        })
                        .sum();
                    let value = &mut expected[one * strides[2] + row * ldc + column];
                    *value = sum + beta * *value;
                }
            }
        }
        let [at_a, at_b, at_c] = [&a, &b, &c].map(|values| upload(&*device, values, stream));
        let product = Product {
            m,
            n,
            k,
            a: at_a,
            lda,
            transpose_a,
            b: at_b,
            ldb,
            transpose_b,
            beta,
            c: at_c,
            ldc,
            batch,
            strides,
            arithmetic,
        };
        // SAFETY: the matrices were just uploaded.
        unsafe {
            assert!(device.product(&product, stream).unwrap());
            assert!(device.product(&Product { m: 0, ..product }, stream).unwrap());
            assert!(!device.product(&Product { k: 0, ..product }, stream).unwrap());
        }
        assert_eq!(download::<f32>(&*device, at_c, c.len(), stream), expected, "{product:?}");
    }
    let wrong = Product {
        m,
        n,
        k,
        a: Address(0),
        lda: 1,
        transpose_a: false,
        b: Address(0),
        ldb: n,
        transpose_b: false,
        beta: 0.0,
        c: Address(0),
        ldc: n,
        batch: 1,
        strides: [0; 3],
        arithmetic: Arithmetic::F32,
    };
    // SAFETY: rejected before anything is read.
    let error = unsafe { device.product(&wrong, stream).unwrap_err() };
    assert_eq!(error.to_string(), "cuda:0: cublasGemmEx failed: CUBLAS_STATUS_INVALID_VALUE");
}

#[test]
fn products_without_cublas_use_kernels() {
    if !is_own_process("products_without_cublas_use_kernels", true, "", "") {
        return;
    }
    let device = nvidia::open(0).unwrap();
    let stream = device.stream(false).unwrap();
    let at = upload(&*device, &[1.0], stream);
    let product = Product {
        m: 1,
        n: 1,
        k: 1,
        a: at,
        lda: 1,
        transpose_a: false,
        b: at,
        ldb: 1,
        transpose_b: false,
        beta: 0.0,
        c: at,
        ldc: 1,
        batch: 1,
        strides: [1; 3],
        arithmetic: Arithmetic::F32,
    };
    // SAFETY: one value each.
    assert!(!unsafe { device.product(&product, stream).unwrap() });
}

#[test]
fn a_missing_driver_is_reported() {
    if is_own_process("a_missing_driver_is_reported", false, "/nowhere", "") && nvidia::count().is_err() {
        assert_eq!(
            refusal(0),
            "--devices cuda:0: no NVIDIA driver was found (libcuda.so.1); install one, or use --devices cpu"
        );
    }
}

#[test]
fn a_library_that_is_not_a_driver_is_reported() {
    // cuBLAS' stand-in, under the driver's name
    let directory = env::temp_dir().join(format!("graphmill-stand-in-{}", std::process::id()));
    if env::var_os("GRAPHMILL_STAND_IN").is_none() {
        std::fs::create_dir_all(&directory).unwrap();
        std::fs::copy(format!("{}/libcublas.so", library("CUBLAS")), directory.join("libcuda.so")).unwrap();
    }
    let path = directory.to_str().unwrap();
    if is_own_process("a_library_that_is_not_a_driver_is_reported", false, path, "") {
        assert!(refusal(0).contains("the NVIDIA driver lacks cuInit; install version 570"), "{}", refusal(0));
        return;
    }
    std::fs::remove_dir_all(&directory).unwrap();
}

#[test]
fn an_old_driver_is_reported() {
    if is_own_process("an_old_driver_is_reported", true, "", "version=12040") {
        assert!(
            refusal(1).contains("supports CUDA 12.4, the kernels need 12.8; install version 570"),
            "{}",
            refusal(1)
        );
    }
}

#[test]
fn a_driver_without_devices_is_reported() {
    if is_own_process("a_driver_without_devices_is_reported", true, "", "init=100") {
        assert!(refusal(0).contains("reports no devices"), "{}", refusal(0));
    }
}

#[test]
fn a_failing_driver_is_reported() {
    if is_own_process("a_failing_driver_is_reported", true, "", "init=999") {
        assert!(refusal(0).contains("cuInit: CUDA_ERROR_UNKNOWN"), "{}", refusal(0));
    }
}

#[test]
fn an_old_device_is_reported() {
    if is_own_process("an_old_device_is_reported", true, "", "capability=75 devices=1") {
        assert!(refusal(0).contains("stand-in 0 has compute capability 7.5"), "{}", refusal(0));
        assert!(refusal(1).contains("reports 1 devices"), "{}", refusal(1));
    }
}

#[test]
fn compiler_messages_of_the_driver_are_reported() {
    if is_own_process("compiler_messages_of_the_driver_are_reported", true, "", "broken-jit") {
        let error = nvidia::open(0).unwrap().kernel("selftest_sum").unwrap_err().to_string();
        assert!(error.contains("selftest.ptx: ") && error.ends_with("ptxas says no"), "{error}");
    }
}

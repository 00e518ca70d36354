//! What calls the vendor's libraries, against libraries that stand in for them: the order of calls
//! and of their arguments, contexts, errors. What the vendor's own libraries do is tested where
//! there is a device.
//!
//! A library is found once in a process, so every test runs in a process of its own: itself, with
//! the environment it needs.

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

/// Whether this is the process that a test runs in; runs it where it is not. `words` are what the
/// stand-in is told.
fn is_own_process(name: &str, cuda: bool, cublas: &str, words: &str) -> bool {
    if env::var_os("GRAPHMILL_STAND_IN").is_some() {
        return true;
    }
    let mut command = Command::new(env::current_exe().unwrap());
    command.args([name, "--exact", "--nocapture"]).env("GRAPHMILL_STAND_IN", words);
    let path = if cuda { format!("{}:{cublas}", library("CUDA")) } else { cublas.to_owned() };
    if words.contains("nccl") {
        command.env("GRAPHMILL_CUDA_PATH", env!("GRAPHMILL_STAND_IN_NCCL"));
    }
    let output = command.env("LD_LIBRARY_PATH", path).output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&text));
    false
}

/// The directory of a stand-in.
fn library(name: &str) -> &'static str {
    if name == "CUDA" { env!("GRAPHMILL_STAND_IN_CUDA") } else { env!("GRAPHMILL_STAND_IN_CUBLAS") }
}

/// A product of one value and one.
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

/// Why a device is refused.
fn refusal(index: usize) -> String {
    let Err(Error::Unavailable(why)) = nvidia::open(index) else { panic!("it is not refused") };
    why
}

fn upload(device: &dyn Driver, values: &[f32], stream: Stream) -> Address {
    let at = device.allocate(4 * values.len()).unwrap();
    // SAFETY: as many bytes as were just allocated.
    unsafe { device.upload(values.as_ptr().cast(), at, 4 * values.len(), stream).unwrap() };
    at
}

fn download<T: bytemuck::Pod>(device: &dyn Driver, at: Address, count: usize, stream: Stream) -> Vec<T> {
    let mut values = vec![T::zeroed(); count];
    // SAFETY: the tests ask for what they have allocated.
    unsafe { device.download(at, values.as_mut_ptr().cast(), size_of::<T>() * count, stream).unwrap() };
    device.synchronize(stream).unwrap();
    values
}

#[test]
fn work_is_done() {
    if !is_own_process("work_is_done", true, "", "") {
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
    // SAFETY: memory of these sizes; it was zeroed, and nobody else has it.
    let numbers = unsafe { std::slice::from_raw_parts_mut(host.pointer.cast::<u32>(), threads as usize) };
    assert!(numbers.iter().all(|&number| number == 0));
    numbers.iter_mut().zip(0..).for_each(|(number, i)| *number = i);
    // SAFETY: as above; the kernel takes one pointer.
    unsafe {
        device.fill(words, 7, threads as usize, stream).unwrap();
        assert_eq!(download::<u32>(&*device, words, 1, stream), [7]);
        device.upload(host.pointer, words, 4 * threads as usize, stream).unwrap();
        let kernel = device.kernel("selftest_reverse").unwrap();
        // more than all kernels may have, and less again
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

    // SAFETY: registered memory outlives what is done with it; the rest as above.
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
    assert_eq!(error, "cuda:1: cuModuleGetFunction failed: there is no kernel \"no_such_kernel\"");
}

#[test]
fn captured_work_is_done_when_it_is_launched() {
    if !is_own_process("captured_work_is_done_when_it_is_launched", true, library("CUBLAS"), "") {
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
        // a stream's first product makes the library's handle, which cannot be captured
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
    assert_eq!(download::<f32>(&*device, c, 1, stream), [11.0], "captured work is not done");
    for times in 1..=2 {
        // SAFETY: all memory is there
        unsafe { device.launch_graph(graph, stream).unwrap() };
        let got = download::<f32>(&*device, words, 1024, stream);
        assert_eq!((&got[..3], got[1023]), (&[0.0, 0.0, 1021.0][..], 0.0));
        assert_eq!(download::<f32>(&*device, c, 1, stream), [11.0 + 6.0 * times as f32]);
    }
    // waiting spoils it, and the stream takes work again
    device.begin_capture(stream).unwrap();
    assert!(device.synchronize(stream).is_err());
    let error = device.end_capture(stream).unwrap_err().to_string();
    assert!(error.contains("cuStreamEndCapture failed"), "{error}");
    device.synchronize(stream).unwrap();
    // SAFETY: nobody names it again
    unsafe { device.destroy_graph(graph) };
    // SAFETY: refused
    assert!(unsafe { device.launch_graph(graph, stream) }.is_err());
}

#[test]
fn a_driver_that_does_not_capture_is_told() {
    if is_own_process("a_driver_that_does_not_capture_is_told", true, "", "no-graphs") {
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
fn nccl_sums() {
    if is_own_process("nccl_sums", true, "", "nccl") {
        let (all, summed) = sums();
        assert_eq!((all.name(), all.num_ranks()), ("NCCL 2.27.5", 2));
        let expected = vec![1.5, 0.0, 3.001];
        assert_eq!(summed.unwrap(), [expected.clone(), expected]);
    }
}

#[test]
fn memory_is_not_given_back_between_the_kernels_of_a_group() {
    if !is_own_process(
        "memory_is_not_given_back_between_the_kernels_of_a_group",
        true,
        library("CUBLAS"),
        "nccl",
    ) {
        return;
    }
    // the stand-ins end the process where it is
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
                // SAFETY: memory of this thread's, whose work is done when it is given back
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
fn a_stream_that_goes_takes_what_its_products_work_in_along() {
    if !is_own_process(
        "a_stream_that_goes_takes_what_its_products_work_in_along",
        true,
        library("CUBLAS"),
        "",
    ) {
        return;
    }
    let device = nvidia::open(0).unwrap();
    for _ in 0..20 {
        // the name of one that went may be another's: its handle must not be
        let stream = device.stream(false).unwrap();
        let [a, b, c] = [[2.0], [3.0], [5.0]].map(|values| upload(&*device, &values, stream));
        // SAFETY: one value each, given back when the work is done
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
    assert_eq!(free, all, "a workspace was left");
}

#[test]
fn what_nccl_refuses_is_told() {
    for call in ["AllReduce", "GroupEnd"] {
        let words = format!("nccl-fails={call}");
        if is_own_process("what_nccl_refuses_is_told", true, "", &words) {
            let (all, summed) = sums();
            let error = summed.unwrap_err().to_string();
            assert!(error.starts_with("NCCL: nccl") && error.ends_with("failed: invalid usage"), "{error}");
            // whose work is under way is not known any more
            let empty = all.sum(vec![Vec::new(), Vec::new()]).unwrap_err().to_string();
            assert!(empty.contains("an earlier call failed"), "{empty}");
            return;
        }
    }
}

#[test]
fn communicators_that_are_refused_are_told() {
    if is_own_process("communicators_that_are_refused_are_told", true, "", "nccl-fails=CommInitAll") {
        let Err(error) = nvidia::open(0).unwrap().collective(&[0, 1]) else { panic!("it is not refused") };
        assert_eq!(error.to_string(), "NCCL: ncclCommInitAll failed: invalid usage");
    }
}

#[test]
fn without_nccl_that_is_told() {
    if is_own_process("without_nccl_that_is_told", true, "", "none") {
        match nvidia::open(0).unwrap().collective(&[0, 1]) {
            Err(Error::Unavailable(why)) => {
                assert!(why.contains("no NCCL was found (libnccl.so.2); GRAPHMILL_CUDA_PATH"), "{why}");
            }
            // this machine has the library, and no device for it
            Err(_) => {}
            Ok(_) => panic!("sums over devices that do not exist"),
        }
    }
}

#[test]
fn other_threads_have_the_context() {
    if !is_own_process("other_threads_have_the_context", true, "", "refuse-read-only no-peers") {
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
    // SAFETY: the memory outlives this.
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
fn products_are_those_of_rows() {
    if !is_own_process("products_are_those_of_rows", true, library("CUBLAS"), "") {
        return;
    }
    check_products();
}

#[test]
fn libraries_are_found_in_named_directories() {
    if env::var_os("GRAPHMILL_CUDA_PATH").is_none() {
        let mut command = Command::new(env::current_exe().unwrap());
        command.args(["libraries_are_found_in_named_directories", "--exact"]);
        command.env("GRAPHMILL_STAND_IN", "").env("LD_LIBRARY_PATH", library("CUDA"));
        let output =
            command.env("GRAPHMILL_CUDA_PATH", format!("/nowhere:{}", library("CUBLAS"))).output().unwrap();
        let text = [output.stdout, output.stderr].concat();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&text));
        return;
    }
    check_products();
}

/// Products of all kinds against their definition.
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
    // SAFETY: refused before anything is read.
    let error = unsafe { device.product(&wrong, stream).unwrap_err() };
    assert_eq!(error.to_string(), "cuda:0: cublasGemmEx failed: CUBLAS_STATUS_INVALID_VALUE");
}

#[test]
fn without_the_library_products_are_left_to_kernels() {
    if !is_own_process("without_the_library_products_are_left_to_kernels", true, "", "") {
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
fn a_missing_driver_is_told() {
    if is_own_process("a_missing_driver_is_told", false, "/nowhere", "") && nvidia::count().is_err() {
        assert_eq!(
            refusal(0),
            "--devices cuda:0: no NVIDIA driver was found (libcuda.so.1); install one, or use --devices cpu"
        );
    }
}

#[test]
fn a_library_that_is_no_driver_is_told() {
    // cuBLAS' stand-in, under the driver's name
    let directory = env::temp_dir().join(format!("graphmill-stand-in-{}", std::process::id()));
    if env::var_os("GRAPHMILL_STAND_IN").is_none() {
        std::fs::create_dir_all(&directory).unwrap();
        std::fs::copy(format!("{}/libcublas.so", library("CUBLAS")), directory.join("libcuda.so")).unwrap();
    }
    let path = directory.to_str().unwrap();
    if is_own_process("a_library_that_is_no_driver_is_told", false, path, "") {
        assert!(
            refusal(0).contains("the NVIDIA driver has no cuInit: install one of version 570"),
            "{}",
            refusal(0)
        );
        return;
    }
    std::fs::remove_dir_all(&directory).unwrap();
}

#[test]
fn an_old_driver_is_told() {
    if is_own_process("an_old_driver_is_told", true, "", "version=12040") {
        assert!(
            refusal(1).contains("one for CUDA 12.4, the kernels need 12.8: install version 570"),
            "{}",
            refusal(1)
        );
    }
}

#[test]
fn a_driver_without_devices_is_told() {
    if is_own_process("a_driver_without_devices_is_told", true, "", "init=100") {
        assert!(refusal(0).contains("sees no device"), "{}", refusal(0));
    }
}

#[test]
fn a_driver_that_fails_is_told() {
    if is_own_process("a_driver_that_fails_is_told", true, "", "init=999") {
        assert!(refusal(0).contains("cuInit: CUDA_ERROR_UNKNOWN"), "{}", refusal(0));
    }
}

#[test]
fn an_old_device_is_told() {
    if is_own_process("an_old_device_is_told", true, "", "capability=75 devices=1") {
        assert!(refusal(0).contains("stand-in 0 has compute capability 7.5"), "{}", refusal(0));
        assert!(refusal(1).contains("sees 1 devices"), "{}", refusal(1));
    }
}

#[test]
fn what_the_drivers_compiler_says_is_told() {
    if is_own_process("what_the_drivers_compiler_says_is_told", true, "", "broken-jit") {
        let error = nvidia::open(0).unwrap().kernel("selftest_sum").unwrap_err().to_string();
        assert!(error.contains("selftest.ptx: ") && error.ends_with("ptxas says no"), "{error}");
    }
}

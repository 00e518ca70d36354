use super::{testing::Style, *};

const PLAIN: Style = Style { big_endian: false, packed: false };

/// Reads the first variable of the file.
fn first<T>(bytes: &[u8], look: impl FnOnce(Variable) -> Result<T>) -> Result<T, String> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.mat");
    std::fs::write(&path, bytes).unwrap();
    let mut mat = Mat::open(&path).map_err(|e| e.to_string())?;
    let variable = mat.next().map_err(|e| e.to_string())?.ok_or("nothing there")?;
    look(variable).map_err(|e| e.to_string())
}

#[test]
fn numbers_of_any_type_byte_order_and_packing_are_read() {
    for (big_endian, packed) in [(false, false), (false, true), (true, false), (true, true)] {
        let style = Style { big_endian, packed };
        let types: [(u32, u32, usize, [u64; 3]); 5] = [
            (11, 4, 2, [1, 300, 65535]),
            (6, 2, 1, [1, 2, 255]), // doubles that fit a byte are stored as such
            (6, 9, 8, [1f64, 2.0, 9.0].map(f64::to_bits)),
            (7, 7, 4, [1f32, 2.0, 9.0].map(|x| x.to_bits().into())),
            (15, 13, 8, [1, 2, 1 << 40]),
        ];
        for (class, kind, size, values) in types {
            let expected = match kind {
                7 | 9 => [1, 2, 9],
                _ => values,
            };
            let data = style.element(kind, size, &values);
            let file = style.file(&[style.matrix(class, 0, &[3, 1], "x", &[data])]);
            let found = first(&file, |v| {
                assert_eq!((v.name.as_str(), &v.shape[..]), ("x", &[3, 1][..]));
                v.dense::<u64>()
            });
            assert_eq!(found.unwrap(), expected);
        }
        let file = style.file(&[style.sparse([4, 3], "A", &[1, 3, 0], &[0, 2, 2, 3])]);
        let found = first(&file, |v| {
            assert_eq!(v.most_entries(), 4);
            v.sparse()
        });
        assert_eq!(found.unwrap(), Sparse { starts: vec![0, 2, 2, 3], row: vec![1, 3, 0] });
    }
}

#[test]
fn variables_are_read_in_order() {
    let packed = Style { packed: true, ..PLAIN };
    let value = |style: Style, name: &str| style.matrix(6, 0, &[1, 1], name, &[style.element(2, 1, &[7])]);
    let nameless = PLAIN.matrix(17, 0, &[], "x", &[]);
    let file = PLAIN.file(&[value(packed, "a"), nameless, value(PLAIN, "longer name"), value(packed, "c")]);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.mat");
    std::fs::write(&path, file).unwrap();
    let mut mat = Mat::open(&path).unwrap();
    let mut names = Vec::new();
    while let Some(variable) = mat.next().unwrap() {
        names.push(variable.name.clone());
        if variable.name.len() > 1 {
            assert_eq!(variable.dense::<u8>().unwrap(), [7]);
        }
    }
    assert_eq!(names, ["a", "", "longer name", "c"]);
}

#[test]
fn other_formats_are_rejected() {
    let fails = |bytes: &[u8], why: &str| {
        let error = first(bytes, |_| Ok(())).unwrap_err();
        assert!(error.contains("a.mat: header: ") && error.contains(why), "{error}");
    };
    fails(b"", "not a MAT file of level 5");
    fails(b"\x89HDF\r\n\x1a\n", "version 7.3 (HDF5)");
    let mut file = PLAIN.file(&[]);
    file[..10].copy_from_slice(b"MATLAB 7.3");
    fails(&file, "save(..., '-v7')");
    let mut file = PLAIN.file(&[]);
    file[125] = 2;
    fails(&file, "version 0x0200");
    file[127] = b'I';
    fails(&file, "not a MAT file of level 5");
}

#[test]
fn errors_contain_the_variable() {
    let fails = |variable: Vec<u8>, why: &str| {
        let sparse = variable[8 + 8] == MX_SPARSE as u8;
        let error = first(&PLAIN.file(&[variable]), |v| {
            if sparse { v.sparse().map(|_| ()) } else { v.dense::<u32>().map(|_| ()) }
        })
        .unwrap_err();
        assert!(error.contains("a.mat: variable ") && error.contains(why), "{error}");
    };
    let dense = |class, shape: &[u64], data| PLAIN.matrix(class, 0, shape, "x", &[data]);
    fails(dense(6, &[2, 1], PLAIN.element(2, 1, &[1])), "x: 1 values, but the shape is [2, 1]");
    fails(dense(6, &[1 << 31, 1], PLAIN.element(2, 1, &[1])), "shape: element 0 is -2147483648");
    fails(dense(4, &[1, 1], PLAIN.element(2, 1, &[1])), "a matrix of numbers expected, class 4");
    fails(dense(6 | COMPLEX, &[1, 1], PLAIN.element(2, 1, &[1])), "complex numbers of class 6");
    fails(dense(6, &[1, 1], PLAIN.element(9, 8, &[0.5f64.to_bits()])), "values: element 0 is 0.5");
    fails(dense(6, &[1, 1], PLAIN.element(16, 1, &[1])), "values: an element of type 16");
    fails(dense(6, &[1, 1], PLAIN.element(9, 1, &[1; 9])), "values: 9 bytes are not numbers of 8");
    fails(dense(6, &[1, 1], vec![2, 0, 7, 0, 1, 1, 1, 1]), "a small element of 7 bytes");
    fails(dense(6, &[1, 1], vec![2, 0, 0, 0, 9, 0, 0, 0]), "claims 9 bytes, but at most 0");
    fails(PLAIN.matrix(6, 0, &[1, 1], "x", &vec![PLAIN.element(2, 1, &[1]); 2]), "data after the values");
    let sparse = |row: &[u64], starts: &[u64]| PLAIN.sparse([2, 2], "A", row, starts);
    fails(sparse(&[0, 2], &[0, 1, 2]), "A: entry 1 is in row 2, but there are 2 rows");
    fails(sparse(&[0], &[0, 1]), "2 column starts, but 2 columns need");
    fails(sparse(&[0], &[0, 1, 2]), "run from 0 to 2, but there are 2 row numbers and 1 values");
    fails(sparse(&[0, 1], &[0, 2, 1]), "decrease after column 1");
    fails(PLAIN.sparse([1, 1 << 30], "A", &[0], &[0, 1]), "1073741824 columns");
    fails(PLAIN.matrix(MX_SPARSE, 9, &[2, 2, 2], "A", &[]), "two axes expected");
}

#[test]
fn implausible_sizes_allocate_nothing() {
    let packed = Style { packed: true, ..PLAIN };
    let mut data = PLAIN.element(9, 8, &[0; 4]);
    data[4..8].copy_from_slice(&u32::MAX.to_le_bytes());
    let file = PLAIN.file(&[packed.matrix(6, 0, &[1 << 29, 1], "x", &[data])]);
    let error = first(&file, |v| v.dense::<u8>()).unwrap_err();
    assert!(error.contains("claims 4294967295 bytes, but at most 32 are left"), "{error}");
}

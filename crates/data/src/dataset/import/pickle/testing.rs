//! Writer of test pickles: in protocol 2 as Python 2 writes them, and in protocol 5.

/// Short text.
pub(in super::super) fn text(s: &str) -> Vec<u8> {
    [&[b'U', s.len() as u8], s.as_bytes()].concat()
}

fn int(x: i32) -> Vec<u8> {
    [&b"J"[..], &x.to_le_bytes()[..]].concat()
}

fn tuple(items: &[Vec<u8>]) -> Vec<u8> {
    [b"(".to_vec(), items.concat(), b"t".to_vec()].concat()
}

/// `np.array(data, dtype).reshape(shape)`, without the frame of a complete pickle.
pub(in super::super) fn array(dtype: &str, shape: &[usize], data: &[u8]) -> Vec<u8> {
    let shape: Vec<Vec<u8>> = shape.iter().map(|&n| int(n as i32)).collect();
    let dtype_state = tuple(&[int(3), text("<"), b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\0".to_vec()]);
    let dtype = [
        b"cnumpy\ndtype\n".to_vec(),
        tuple(&[text(dtype), int(0), int(1)]),
        b"R".to_vec(),
        dtype_state,
        b"b".to_vec(),
    ]
    .concat();
    let raw = [&b"T"[..], &(data.len() as u32).to_le_bytes()[..], data].concat();
    [
        b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\0\x85".to_vec(),
        text("b"),
        b"\x87R".to_vec(),
        tuple(&[int(1), tuple(&shape), dtype, b"\x89".to_vec(), raw]),
        b"b".to_vec(),
    ]
    .concat()
}

/// Complete pickle of one value.
pub(crate) fn pickle(value: &[u8]) -> Vec<u8> {
    [b"\x80\x02", value, b"."].concat()
}

/// `csr_matrix` of the given dense rows.
pub(in super::super) fn csr(rows: &[&[f32]]) -> Vec<u8> {
    let (mut indptr, mut indices, mut data) = (vec![0i32], Vec::<i32>::new(), Vec::<f32>::new());
    for row in rows {
        for (j, &x) in row.iter().enumerate().filter(|(_, x)| **x != 0.0) {
            indices.push(j as i32);
            data.push(x);
        }
        indptr.push(indices.len() as i32);
    }
    let shape = tuple(&[int(rows.len() as i32), int(rows[0].len() as i32)]);
    let bytes = bytemuck::cast_slice::<i32, u8>;
    let fields = [
        text("_shape"),
        shape,
        text("indptr"),
        array("i4", &[indptr.len()], bytes(&indptr)),
        text("indices"),
        array("i4", &[indices.len()], bytes(&indices)),
        text("data"),
        array("f4", &[data.len()], bytemuck::cast_slice(&data)),
    ];
    [b"cscipy.sparse.csr\ncsr_matrix\n)\x81}(".to_vec(), fields.concat(), b"ub".to_vec()].concat()
}

/// `defaultdict(list)` of neighbour lists.
pub(in super::super) fn lists(lists: &[(i32, &[i32])]) -> Vec<u8> {
    let entries: Vec<Vec<u8>> = lists
        .iter()
        .map(|(v, list)| {
            let items: Vec<Vec<u8>> = list.iter().map(|&u| int(u)).collect();
            [int(*v), b"](".to_vec(), items.concat(), b"e".to_vec()].concat()
        })
        .collect();
    [b"ccollections\ndefaultdict\nc__builtin__\nlist\n\x85R(".to_vec(), entries.concat(), b"u".to_vec()]
        .concat()
}

/// `{(np.int64(a), np.int64(b), np.int64(c)): np.array(list), ...}` in protocol 5, with the calls
/// of NumPy 2, whose targets are memoized in front of the dictionary.
pub(crate) fn keyed(entries: &[([i64; 3], &[i64])]) -> Vec<u8> {
    let number = |x: &i64| [&b"h\0h\x01C\x08"[..], &x.to_le_bytes(), b"\x86R"].concat();
    let array = |list: &[i64]| {
        let bytes: Vec<u8> = list.iter().flat_map(|x| x.to_le_bytes()).collect();
        let length = (bytes.len() as u64).to_le_bytes();
        [b"h\x02(\x96", &length[..], &bytes, b"h\x01", &int(list.len() as i32), b"\x85\x8c\x01CtR"].concat()
    };
    let entries = entries.iter().map(|(key, list)| {
        let key: Vec<u8> = key.iter().flat_map(number).collect();
        [&key[..], b"\x87", &array(list)].concat()
    });
    [
        &b"\x80\x05\x8c\x16numpy._core.multiarray\x8c\x06scalar\x93\x940"[..],
        b"\x8c\x05numpy\x8c\x05dtype\x93\x8c\x02i8\x89\x88\x87R",
        b"(K\x03\x8c\x01<NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\0tb\x940",
        b"\x8c\x13numpy._core.numeric\x8c\x0b_frombuffer\x93\x940",
        b"}(",
        &entries.collect::<Vec<_>>().concat(),
        b"u.",
    ]
    .concat()
}

use std::path::Path;

use graphmill_core::location::Location;

use super::{testing::*, *};

fn error(data: &[u8]) -> String {
    let (at, message) = read(data).unwrap_err();
    format!("byte {at}: {message}")
}

#[test]
fn arrays_matrices_and_lists() {
    let data = pickle(&array("i4", &[2, 2], bytemuck::cast_slice(&[1i32, 2, 3, 4])));
    assert_eq!(read(&data).unwrap().array::<i64>().unwrap(), (vec![1, 2, 3, 4], vec![2, 2]));
    let data = pickle(&csr(&[&[0., 2.], &[1., 0.]]));
    let matrix = read(&data).unwrap().csr(&Location::new(Path::new("x"), "pickle")).unwrap();
    assert_eq!((matrix.rows, matrix.columns, matrix.indices), (2, 2, vec![1, 0]));
    let data = pickle(&lists(&[(0, &[1, 2]), (2, &[0])]));
    assert_eq!(read(&data).unwrap().adjacency().unwrap(), [(0, 1), (0, 2), (2, 0)]);
}

#[test]
fn pickles_of_python_3_are_read() {
    // pickle.dumps(collections.OrderedDict([(1, [2, 300])]), 4).
    let data = b"\x80\x04\x95\x2c\0\0\0\0\0\0\0\x8c\x0bcollections\x94\x8c\x0bOrderedDict\x94\x93\
                 \x94)R\x94K\x01]\x94(K\x02M\x2c\x01es.";
    assert_eq!(read(data).unwrap().adjacency().unwrap(), [(1, 2), (1, 300)]);
    // An array in protocol 2, whose bytes are text to be encoded.
    let encoded = b"c_codecs\nencode\nX\x02\0\0\0\xc3\xbfU\x06latin1\x86R"; // U+00FF in UTF-8
    let mut data = pickle(&array("i1", &[1], b"?"));
    let place = data.windows(6).position(|w| w == b"T\x01\0\0\0?").unwrap();
    data.splice(place..place + 6, encoded.iter().copied());
    assert_eq!(read(&data).unwrap().array::<i64>().unwrap().0, [-1]);
    // Empty bytes are a call.
    let mut data = pickle(&array("i1", &[0], b""));
    let place = data.windows(5).position(|w| w == b"T\0\0\0\0").unwrap();
    data.splice(place..place + 5, b"c__builtin__\nbytes\n)R".iter().copied());
    assert_eq!(read(&data).unwrap().array::<i64>().unwrap(), (vec![], vec![0]));
}

/// Python 3.11 and NumPy 2.4: `pickle.dumps({(np.int64(1), np.int64(9), np.int64(36)):
/// np.array([8, 10]), (np.int64(2), np.int64(8), np.int64(40)): np.concatenate((np.array([]),
/// np.array([9])))}, protocol)`, whose second list is one of floats.
const KEYED: [&[u8]; 2] = [
    b"\x80\x04\x95f\x01\0\0\0\0\0\0}\x94(\x8c\x16numpy._core.multiarray\x94\x8c\x06scalar\x94\
      \x93\x94\x8c\x05numpy\x94\x8c\x05dtype\x94\x93\x94\x8c\x02i8\x94\x89\x88\x87\x94R\x94(K\
      \x03\x8c\x01<\x94NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\0t\x94bC\x08\x01\0\0\0\0\0\0\0\x94\
      \x86\x94R\x94h\x03h\tC\x08\t\0\0\0\0\0\0\0\x94\x86\x94R\x94h\x03h\tC\x08$\0\0\0\0\0\0\0\
      \x94\x86\x94R\x94\x87\x94h\x01\x8c\x0c_reconstruct\x94\x93\x94h\x04\x8c\x07ndarray\x94\x93\
      \x94K\0\x85\x94C\x01b\x94\x87\x94R\x94(K\x01K\x02\x85\x94h\t\x89C\x10\x08\0\0\0\0\0\0\0\n\
      \0\0\0\0\0\0\0\x94t\x94bh\x03h\tC\x08\x02\0\0\0\0\0\0\0\x94\x86\x94R\x94h\x03h\tC\x08\x08\
      \0\0\0\0\0\0\0\x94\x86\x94R\x94h\x03h\tC\x08(\0\0\0\0\0\0\0\x94\x86\x94R\x94\x87\x94h\x17h\
      \x19K\0\x85\x94h\x1b\x87\x94R\x94(K\x01K\x01\x85\x94h\x06\x8c\x02f8\x94\x89\x88\x87\x94R\
      \x94(K\x03h\nNNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\0t\x94b\x89C\x08\0\0\0\0\0\0\"@\x94t\
      \x94bu.",
    b"\x80\x05\x95c\x01\0\0\0\0\0\0}\x94(\x8c\x16numpy._core.multiarray\x94\x8c\x06scalar\x94\
      \x93\x94\x8c\x05numpy\x94\x8c\x05dtype\x94\x93\x94\x8c\x02i8\x94\x89\x88\x87\x94R\x94(K\
      \x03\x8c\x01<\x94NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\0t\x94bC\x08\x01\0\0\0\0\0\0\0\x94\
      \x86\x94R\x94h\x03h\tC\x08\t\0\0\0\0\0\0\0\x94\x86\x94R\x94h\x03h\tC\x08$\0\0\0\0\0\0\0\
      \x94\x86\x94R\x94\x87\x94\x8c\x13numpy._core.numeric\x94\x8c\x0b_frombuffer\x94\x93\x94(\
      \x96\x10\0\0\0\0\0\0\0\x08\0\0\0\0\0\0\0\n\0\0\0\0\0\0\0\x94h\tK\x02\x85\x94\x8c\x01C\x94t\
      \x94R\x94h\x03h\tC\x08\x02\0\0\0\0\0\0\0\x94\x86\x94R\x94h\x03h\tC\x08\x08\0\0\0\0\0\0\0\
      \x94\x86\x94R\x94h\x03h\tC\x08(\0\0\0\0\0\0\0\x94\x86\x94R\x94\x87\x94h\x18(\x96\x08\0\0\0\
      \0\0\0\0\0\0\0\0\0\0\"@\x94h\x06\x8c\x02f8\x94\x89\x88\x87\x94R\x94(K\x03h\nNNNJ\xff\xff\
      \xff\xffJ\xff\xff\xff\xffK\0t\x94bK\x01\x85\x94h\x1bt\x94R\x94u.",
];

/// Entries of a dictionary from three numbers to lists.
type KeyedLists = Vec<([i64; 3], Vec<i64>)>;

fn keyed_lists(data: &[u8]) -> Result<KeyedLists, String> {
    let mut found = Vec::new();
    let pickle = read(data).map_err(|(_, message)| message)?;
    let each = |key: [i64; 3], list: &[i64]| {
        found.push((key, list.to_vec()));
        Ok(())
    };
    pickle.keyed_lists(each)?;
    Ok(found)
}

#[test]
fn lists_by_three_numbers_are_read_in_every_form() {
    for data in KEYED {
        assert_eq!(keyed_lists(data).unwrap(), [([1, 9, 36], vec![8, 10]), ([2, 8, 40], vec![9])]);
    }
    let written = keyed(&[([1, 9, 36], &[8, 10]), ([2, 8, 40], &[])]);
    assert_eq!(keyed_lists(&written).unwrap(), [([1, 9, 36], vec![8, 10]), ([2, 8, 40], vec![])]);
    // Python's own numbers and lists: {(1, 2, 3.0): [4, 5]}
    let plain = |entry: &[u8]| pickle(&[b"}(", entry, b"u"].concat());
    let data = plain(b"K\x01K\x02G\x40\x08\0\0\0\0\0\0\x87](K\x04K\x05e");
    assert_eq!(keyed_lists(&data).unwrap(), [([1, 2, 3], vec![4, 5])]);
    for (bad, why) in [
        (pickle(b"]"), "a dictionary from tuples of 3 numbers to lists expected"),
        (plain(b"K\x01K\x02\x86]"), "entry 0: its key is not a tuple of 3 numbers"),
        (plain(b"K\x01K\x02G\x3f\xe0\0\0\0\0\0\0\x87]"), "entry 0: 0.5 is not a whole number"),
        (plain(b"K\x01K\x02U\x013\x87]"), "entry 0: a number expected"),
        (plain(b"K\x01K\x02K\x03\x87K\x04"), "entry 0: a list or an array of numbers expected"),
        (plain(&[b"K\x01K\x02K\x03\x87", &array("i4", &[1, 1], &[1; 4])[..]].concat()), "[1, 1]; one axis"),
    ] {
        let message = keyed_lists(&bad).unwrap_err();
        assert!(message.contains(why), "{message}");
    }
    // a list of 200 numbers, shared by many keys
    let list = [b"](".to_vec(), b"K\x01".repeat(200), b"eq\0".to_vec()].concat();
    let entries: Vec<u8> = (0..200u8).flat_map(|i| [b'K', i, b'K', 1, b'K', 2, 0x87, b'h', 0]).collect();
    let shared = pickle(&[&list[..], b"0}(", &entries, b"u"].concat());
    assert!(keyed_lists(&shared).unwrap_err().contains("more numbers than the file has bytes"));
}

#[test]
fn no_code_is_ever_run() {
    let attack = error(b"\x80\x02cos\nsystem\nU\x04true\x85R.");
    assert!(attack.contains("'os.system'") && attack.contains("nothing was run"), "{attack}");
    assert!(attack.starts_with("byte 2:"), "{attack}");
    let attack = error(b"\x80\x04\x8c\x02os\x8c\x06system\x93\x8c\x04true\x85R.");
    assert!(attack.contains("'os.system'"), "{attack}");
    for (attack, why) in [
        (&b"\x80\x02c__builtin__\neval\nU\x011\x85R."[..], "__builtin__.eval"),
        (b"\x80\x02c__builtin__\nlist\n)R.", "List"),
        (b"\x80\x02cnumpy\nndarray\n)\x81.", "nothing was run"),
        (b"\x80\x02(U\x04trueios\nsystem\n.", "0x69"),
        (b"\x80\x02U\x01x)R.", "not a listed class"),
        (b"\x80\x02P1\n.", "0x50"),
    ] {
        let message = error(attack);
        assert!(message.contains(why), "{message}");
    }
}

#[test]
fn broken_programs_are_errors() {
    for bad in [
        &b""[..],
        b"\x80",
        b"\x80\x09.",
        b"\x80\x02",
        b"\x80\x02.",
        b"(.",
        b"t.",
        b"\x85.",
        b"(K\x01(\x86.",
        b"]K\x01K\x02s.",
        b"}(K\x01u.",
        b"h\x05.",
        b"T\xff\xff\xff\xffab.",
        b"\x8e\xff\xff\xff\xff\xff\xff\xff\xff.",
        b"K\x01K\x02b.",
        b"\x8a\x09123456789.",
        b"K\x01(0.",
        b"cnumpy\ndtype",
    ] {
        error(bad);
    }
    // The program is valid, but the value is of another kind.
    let pickle = read(b"\x80\x02]q\0h\0a.").unwrap(); // a list that contains itself
    assert!(pickle.adjacency().is_err() && pickle.array::<i64>().is_err());
}

#[test]
fn small_files_cannot_expand() {
    // A list of 200 neighbours, shared by 1000 nodes.
    let shared = [b"](".to_vec(), b"K\x01".repeat(200), b"eq\0".to_vec()].concat();
    let entries: Vec<u8> = (0..1000u16).flat_map(|v| [b'M', v as u8, (v >> 8) as u8, b'h', 0]).collect();
    let data = pickle(&[&shared[..], b"0}(", &entries, b"u"].concat());
    assert!(read(&data).unwrap().adjacency().unwrap_err().contains("more neighbours"));
    // A text decoded many times.
    let text = [&b"X\xc8\0\0\0"[..], &[b'a'; 200], b"q\x01c_codecs\nencode\nq\x02"].concat();
    let data = pickle(&[&text[..], &b"h\x02h\x01\x85R".repeat(100)].concat());
    assert!(error(&data).contains("again and again"));
    // Deep nesting.
    let data = pickle(&[b")".to_vec(), b"\x85".repeat(1_000_000)].concat());
    assert!(read(&data).unwrap().adjacency().is_err());
}

#[test]
fn damage_is_an_error_or_harmless() {
    let at = Location::new(Path::new("x"), "pickle");
    for good in [
        pickle(&array("i4", &[2, 2], &[1; 16])),
        pickle(&csr(&[&[0., 2.], &[1., 0.]])),
        pickle(&lists(&[(0, &[1, 2]), (2, &[0])])),
        keyed(&[([1, 9, 36], &[8, 10])]),
        KEYED[0].to_vec(),
        KEYED[1].to_vec(),
    ] {
        for length in 0..good.len() {
            assert!(read(&good[..length]).is_err());
        }
        for bit in 0..good.len() * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            if let Ok(pickle) = read(&bad) {
                let _ = (pickle.array::<i32>(), pickle.csr(&at), pickle.adjacency()); // no panic
                let _ = pickle.keyed_lists::<3>(|_, _| Ok(()));
            }
        }
    }
}

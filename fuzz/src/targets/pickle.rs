//! Pickle, and every kind of value that importers extract from one.

use graphmill_data::dataset::import::fuzz;

use super::Answer;
use crate::alloc::limited;

pub(super) const TOKENS: &[&[u8]] = &[
    b"\x80\x02",
    b"cnumpy.core.multiarray\n_reconstruct\n",
    b"cnumpy._core.multiarray\n_reconstruct\n",
    b"cnumpy\nndarray\n",
    b"cnumpy\ndtype\n",
    b"cscipy.sparse.csr\ncsr_matrix\n",
    b"cscipy.sparse._csr\ncsr_matrix\n",
    b"ccollections\ndefaultdict\n",
    b"ccollections\nOrderedDict\n",
    b"c__builtin__\nlist\n",
    b"c_codecs\nencode\n",
    b"\x8c\x05numpy\x8c\x05dtype\x93",
    b"\x80\x05\x95",
    b"\x8c\x12numpy.core.numeric\x94\x8c\x0b_frombuffer\x94\x93\x94",
    b"\x8c\x15numpy.core.multiarray\x94\x8c\x06scalar\x94\x93\x94",
    b"\x8c\x02i8\x94\x89\x88\x87\x94R\x94",
    b"C\x08\x01\0\0\0\0\0\0\0\x94\x86\x94R\x94",
    b"\x96\x08\0\0\0\0\0\0\0",
    b"\x8c\x01C\x94t\x94R\x94",
    b"\x87\x94",
    b"U\x01<",
    b"U\x02i4",
    b"U\x02f4",
    b"U\x06_shape",
    b"U\x06indptr",
    b"U\x07indices",
    b"U\x04data",
    b"X\x04\0\0\0data",
    b"X\x06\0\0\0latin1",
    b"K\0\x85",
    b"U\x01b\x87R",
    b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\0",
    b"q\0",
    b"h\0",
    b"](",
    b"}(",
    b"tRq",
    b"ub.",
];

/// One input: the bytes of the pickle.
pub fn run(data: &[u8]) -> Answer {
    Ok(limited(data.len(), || fuzz::pickle(data))?)
}

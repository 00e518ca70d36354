use half::{bf16, f16};

use super::*;

#[test]
fn views_are_runs_of_rows() {
    let mut m = Matrix::from_slice(3, 2, &[1., 2., 3., 4., 5., 6.]);
    assert_eq!(m.rows(1..3).host(), [3., 4., 5., 6.]);
    assert_eq!(m.rows(1..3).rows(1..2).host(), [5., 6.]);
    m.rows_mut(0..1).host().fill(9.0);
    assert_eq!(m.view().host()[..3], [9., 9., 3.]);
    assert_eq!(m.view().host().as_ptr() as usize % 64, 0);
}

#[test]
fn shared_tables_are_read_as_they_are_stored() {
    let wide = Matrix::shared(TableData::F32(vec![1.0, 2.0, 3.0, 4.0].into()), 2);
    assert_eq!(wide.rows(1..2).host(), [3.0, 4.0]);
    let half = [1.0, 2.0, 3.0, 4.0].map(bf16::from_f32);
    let half = Matrix::shared(TableData::Bf16(half.to_vec().into()), 2);
    let Table::Bf16(row) = half.rows(1..2).table() else { panic!() };
    assert_eq!(row, [3.0, 4.0].map(bf16::from_f32));
    assert_eq!(format!("{half:?}"), "Matrix(2 x 2, 16-bit floats)");
}

#[test]
#[should_panic(expected = "gather its rows first")]
fn half_tables_are_not_read_as_f32() {
    Matrix::shared(TableData::F16(vec![f16::ONE].into()), 1).view().host();
}

#[test]
fn sparse_rows_are_gathered_and_transposed() {
    let indptr = vec![0, 1, 1, 3];
    let rows = SparseRows::new(4, indptr.into(), vec![2, 0, 2].into(), vec![5.0, 1.0, 3.0].into());
    let table = Matrix::sparse_table(rows.unwrap());
    let mut batch = Matrix::default();
    batch.gather_sparse(table.view(), &[2, 0, 1]);
    batch.transpose_sparse();
    let sparse = batch.view().sparse().unwrap();
    assert_eq!((sparse.indptr, sparse.indices), (&[0, 2, 3, 3][..], &[0, 2, 2][..]));
    assert_eq!((sparse.values, &sparse.transposed.dst[..]), (&[1.0, 3.0, 5.0][..], &[0, 0, 1][..]));
    assert_eq!(sparse.transposed.indptr, [0, 1, 1, 3, 3]);
    let other = [7.0, 8.0, 9.0];
    let view = batch.view().with_values(&other).rows(1..3);
    assert_eq!(view.sparse_row(0), Some((&[2][..], &[9.0][..])));
    assert_eq!((view.sparse().unwrap().indptr, view.sparse().unwrap().first), (&[2, 3, 3][..], 1));
    // and from there on
    let mut again = Matrix::zeros(3, 3);
    again.gather_sparse(batch.view(), &[1, 1]);
    assert_eq!(again.view().sparse().unwrap().values, [5.0, 5.0]);
    assert_eq!(format!("{again:?}"), "Matrix(2 x 4, sparse)");
    assert!(table.view().sparse().is_none() && table.is_sparse() && !table.is_wide());
}

#[test]
fn many_sparse_rows_are_gathered_as_few_are() {
    let n: u32 = 5000;
    let indptr: Vec<u64> = (0..=u64::from(n)).map(|v| v * (v + 1) / 2 % 7 + 3 * v).collect();
    let indptr: Vec<u64> = (0..indptr.len()).map(|v| indptr[..=v].iter().copied().max().unwrap()).collect();
    let indices: Vec<u32> = indptr.windows(2).flat_map(|pair| 0..(pair[1] - pair[0]) as u32).collect();
    let values: Vec<f32> = (0..indices.len()).map(|k| k as f32).collect();
    let indptr: Vec<u64> = indptr.iter().map(|start| start - indptr[0]).collect();
    let rows = SparseRows::new(40, indptr.into(), indices.into(), values.into()).unwrap();
    let ids: Vec<u32> = (0..n).map(|i| i * 37 % n).collect();
    let expected = rows.select(&ids).unwrap();
    let mut batch = Matrix::default();
    batch.gather_sparse(Matrix::sparse_table(rows).view(), &ids);
    let sparse = batch.view().sparse().unwrap();
    assert_eq!((sparse.indices, sparse.values), (&expected.indices()[..], &expected.values()[..]));
    assert!(sparse.indptr.iter().zip(&expected.indptr()[..]).all(|(&a, &b)| u64::from(a) == b));
}

#[test]
fn resizing_keeps_the_memory() {
    let mut m = Matrix::zeros(100, 10);
    let at = m.view().host().as_ptr();
    m.resize(10, 10);
    m.resize(100, 10);
    assert_eq!(at, m.view().host().as_ptr());
}

#[test]
fn wider_rows_keep_their_values_and_end_with_zeros() {
    let mut m = Matrix::from_slice(3, 2, &[1., 2., 3., 4., 5., 6.]);
    m.widen(5);
    assert_eq!(m.num_cols(), 5);
    assert_eq!(m.view().host(), [1., 2., 0., 0., 0., 3., 4., 0., 0., 0., 5., 6., 0., 0., 0.]);
    // memory of earlier values
    m.resize(2, 1);
    m.view_mut().host().fill(7.0);
    m.widen(2);
    assert_eq!(m.view().host(), [7., 0., 7., 0.]);
    m.widen(2);
    assert_eq!(m.view().host(), [7., 0., 7., 0.]);
    let mut none = Matrix::zeros(2, 0);
    none.widen(1);
    assert_eq!(none.view().host(), [0., 0.]);
}

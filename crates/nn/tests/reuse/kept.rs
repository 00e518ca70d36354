//! Copies of the rows that a step computes in the bottom layer.

use super::*;

#[test]
fn kept_rows_are_those_of_the_bottom_layer_and_change_no_result() {
    for config in configs() {
        let mut model = model(&config);
        let batch = batch(&model);
        let x = batch.x.view();
        for orders in all_orders(&model) {
            let mut step = |keeps: bool| {
                let mut acts = Activations::default();
                if keeps {
                    acts.keep_bottom_rows();
                }
                model.zero_grad(&Reference);
                model.forward(&pass(true), &orders, &batch.exact, x, &mut acts);
                acts.logits_and_grad().1.host().copy_from_slice(batch.c.view().host());
                model.backward(&pass(true), &orders, &batch.exact, x, &mut acts);
                (acts, named_gradients(&model))
            };
            let ((plain, expected), (keeping, grads)) = (step(false), step(true));
            assert!(plain.kept_rows().is_none());
            let far = distance(keeping.logits(), plain.logits());
            assert!(far < 1e-6, "{config:?} {orders:?}: {far}");
            for ((name, a), (_, b)) in grads.iter().zip(&expected) {
                assert!(distance(a.view(), b.view()) < 1e-5, "{config:?} {orders:?} {name}");
            }
            let block = &batch.exact[0];
            let mut rows = Matrix::zeros(block.num_dst, model.layer_out_dim(0));
            let input = LayerInput { order: orders[0], block, x, transformed: &[] };
            let to = BottomRows { rows: &mut rows, at: 0, aggregates: &mut [], aggregates_at: 0 };
            model.bottom_rows(&pass(true), &input, &mut Activations::default(), to);
            let far = distance(keeping.kept_rows().unwrap(), rows.view());
            assert!(far < 1e-6, "{config:?} {orders:?}: {far}");
        }
    }
}

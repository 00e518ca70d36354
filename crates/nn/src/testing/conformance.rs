//! Conformance tests for layers: gradients against finite differences, both orders, local and
//! global blocks, any number of threads.
//!
//! A crate with its own layer calls [`assert_layer`] with the row that it registers:
//!
//! ```
//! use graphmill_nn::{layer, testing::conformance};
//! conformance::assert_layer(layer::TABLE.find("gcn")?);
//! # Ok::<(), graphmill_nn::Error>(())
//! ```

use graphmill_core::{
    Block,
    block::Aggregation,
    options::{OptionGroup, OwnOptions},
    table::Entry,
};

use super::{Checked, check, distance, dot, global, nudge, pass, random, random_block};
use crate::{
    Backend, Epilogue, Layer, LayerConfig, Matrix, Param, Pass, Saved, View,
    backend::{Activation, Cpu, Dropout, Reference},
    cost::ProductOrder,
    layer::{Aggregator, Combine, GatOptions, LayerGrads, LayerInput, LayerKind, SageOptions},
};

/// Number of destinations in the tests' blocks.
const D: usize = 7;
/// Number of sources in the tests' blocks.
const S: usize = 12;

/// Runs every check on a layer, in all variants that the options in its row allow.
///
/// # Panics
/// A check fails.
pub fn assert_layer(entry: &Entry<LayerKind>) {
    for mut case in cases(entry) {
        case.assert_gradients();
        case.assert_orders_agree();
        case.assert_global_blocks_agree();
        case.assert_restricted_gradients_agree();
        case.assert_restriction_is_refused();
        case.assert_aggregates_suffice();
        case.assert_gradients_add_up();
        case.assert_empty_blocks();
        case.assert_own_rows_are_declared();
        case.assert_threads_agree();
    }
}

/// A layer in one of its variants, and the kind of block it is tested on.
#[derive(Clone)]
pub struct Case {
    /// Name of the layer and the variant, for messages.
    pub name: String,
    /// The layer.
    pub layer: Box<dyn Layer>,
    /// If true, the blocks have weights.
    pub is_weighted: bool,
}

/// All variants of a layer that the options in its row allow, on blocks with and without weights.
///
/// # Panics
/// The layer cannot be created.
pub fn cases(entry: &Entry<LayerKind>) -> Vec<Case> {
    let mut cases = Vec::new();
    for (form, config) in forms(entry) {
        let mut layer = (entry.make.make)(&config).expect("a layer of these widths");
        move_from_first_values(layer.as_mut());
        let symmetric = layer.spec().aggregation == Aggregation::Symmetric;
        for is_weighted in [false, true] {
            if is_weighted || !symmetric {
                let name = format!("{} {form}{}", entry.name, if is_weighted { ", weighted" } else { "" });
                cases.push(Case { name, layer: layer.clone(), is_weighted });
            }
        }
    }
    cases
}

fn forms(entry: &Entry<LayerKind>) -> Vec<(&'static str, LayerConfig)> {
    // a smooth activation, so that finite differences are meaningful almost everywhere
    let activation = Activation::Elu;
    let heads = |heads, attention_dropout| {
        OwnOptions::default().with(GatOptions { heads, out_heads: heads, attention_dropout })
    };
    let own = heads(1, 0.0);
    let base = LayerConfig { in_dim: 5, out_dim: 6, activation, key: 3, own, ..LayerConfig::default() };
    let has = |group| entry.options.contains(&group);
    if entry.make.hops.is_some() {
        // a layer of one hop; three hops of unequal parts; scores
        let first = LayerConfig { out_dim: 10, hops: 3, ..base.clone() };
        return vec![
            ("one hop", LayerConfig { out_dim: 5, ..base.clone() }),
            ("first hop", first.clone()),
            ("second hop", LayerConfig { hop: 2, ..first.clone() }),
            ("last hop", LayerConfig { hop: 3, ..first }),
            ("classes", LayerConfig { out_dim: 3, classifies: true, concat: false, ..base }),
        ];
    }
    let mut forms = vec![
        ("plain", base.clone()),
        ("unbiased", LayerConfig { bias: false, ..base.clone() }),
        ("classes", LayerConfig { out_dim: 3, classifies: true, concat: false, ..base.clone() }),
    ];
    if has(OptionGroup::of::<SageOptions>()) {
        let own =
            base.own.clone().with(SageOptions { aggregator: Aggregator::MaxPool, ..SageOptions::default() });
        forms.push(("max-pool", LayerConfig { own, ..base.clone() }));
        let concat = SageOptions { sage_combine: Combine::Concat, ..SageOptions::default() };
        let own = base.own.clone().with(concat);
        forms.push(("concat", LayerConfig { own: own.clone(), ..base.clone() }));
        let classes = LayerConfig { own, out_dim: 3, classifies: true, concat: false, ..base.clone() };
        forms.push(("concat classes", classes));
    }
    if has(OptionGroup::of::<GatOptions>()) {
        forms.push(("heads", LayerConfig { own: heads(3, 0.4), ..base.clone() }));
        let averaged = LayerConfig { own: heads(2, 0.0), concat: false, out_dim: 3, ..base.clone() };
        forms.push(("heads averaged", averaged));
    }
    if entry.make.has_inner_norm {
        forms.push(("batch norm", LayerConfig { batch_norm: true, ..base.clone() }));
    }
    if entry.make.has_inner_activation {
        forms.push(("relu", LayerConfig { activation: Activation::Relu, ..base }));
    }
    forms
}

/// Moves parameters away from their initial zeros and ones, at which a wrong gradient may be
/// correct.
fn move_from_first_values(layer: &mut dyn Layer) {
    let mut seed = 100;
    layer.visit_mut(&mut |p| {
        if p.trainable && p.value.num_rows() == 1 {
            seed += 1;
            let moved = random(1, p.value.num_cols(), seed);
            for (x, m) in p.value.view_mut().host().iter_mut().zip(moved.view().host()) {
                *x += 0.3 * m;
            }
        }
    });
}

/// Epilogues that layers are tested with.
fn epilogues() -> [Epilogue; 2] {
    let dropout = Dropout { p: 0.3, key: 77 };
    [Epilogue::NONE, Epilogue { activation: Activation::Elu, dropout }]
}

fn forward(
    layer: &dyn Layer,
    pass: &Pass,
    input: &LayerInput,
    epilogue: Epilogue,
    saved: &mut Saved,
) -> Matrix {
    let mut out = Matrix::zeros(input.block.num_dst, layer.spec().out_dim);
    layer.run_forward(pass, input, epilogue, saved, out.view_mut());
    out
}

/// Computes the output, all gradients of `dot(output, c)`, and the input's gradient if requested.
fn backward(
    layer: &mut dyn Layer,
    pass: &Pass,
    input: &LayerInput,
    epilogue: Epilogue,
    c: &Matrix,
    wants_input: bool,
) -> (Matrix, Vec<Matrix>, Matrix) {
    let (mut saved, mut grad, mut x_grad) = (Saved::default(), c.clone(), Matrix::default());
    let y = forward(layer, pass, input, epilogue, &mut saved);
    layer.visit_mut(&mut |p| p.zero_grad(&Reference));
    let grads = LayerGrads { y: y.view(), grad: &mut grad, x_grad: wants_input.then_some(&mut x_grad) };
    layer.run_backward(pass, input, epilogue, &mut saved, grads);
    if epilogue == Epilogue::NONE {
        assert_eq!(distance(grad.view(), c.view()), 0.0, "without an epilogue the gradient is unchanged");
    }
    let mut grads = Vec::new();
    layer.visit(&mut |p| grads.push(p.grad.clone()));
    (y, grads, x_grad)
}

fn nth(layer: &mut dyn Layer, n: usize, change: impl Fn(&mut Param)) {
    let mut i = 0;
    layer.visit_mut(&mut |p| {
        if i == n {
            change(p);
        }
        i += 1;
    });
}

fn plain<'a>(order: ProductOrder, block: &'a Block, x: View<'a>) -> LayerInput<'a> {
    LayerInput { order, block, x, transformed: &[] }
}

impl Case {
    fn orders(&self) -> &'static [ProductOrder] {
        self.layer.spec().orders
    }

    /// A block, input rows, and the factors of the objective.
    fn inputs(&self, seed: u64) -> (Block, Matrix, Matrix) {
        let spec = self.layer.spec();
        let block = random_block(D, S, self.is_weighted, seed);
        (block, random(S, spec.in_dim, seed + 1), random(D, spec.out_dim, seed + 2))
    }

    /// Asserts that every gradient matches finite differences of the forward pass.
    ///
    /// # Panics
    /// A check fails, as in the other assertions.
    pub fn assert_gradients(&mut self) {
        let (block, mut x, c) = self.inputs(5);
        for &order in self.orders() {
            for epilogue in epilogues() {
                self.assert_gradients_of(order, epilogue, &block, &mut x, &c);
            }
        }
    }

    fn assert_gradients_of(
        &mut self,
        order: ProductOrder,
        epilogue: Epilogue,
        block: &Block,
        x: &mut Matrix,
        c: &Matrix,
    ) {
        let Self { name, layer, .. } = self;
        let pass = &pass(true);
        let mut checked = Checked::default();
        let objective = |layer: &dyn Layer, x: View| {
            let out = forward(layer, pass, &plain(order, block, x), epilogue, &mut Saved::default());
            dot(out.view(), c.view())
        };
        let input = plain(order, block, x.view());
        let (_, grads, x_grad) = backward(layer.as_mut(), pass, &input, epilogue, c, true);
        let mut params = Vec::new();
        layer.visit(&mut |p| params.push((p.name, p.trainable)));
        for (n, (param, trainable)) in params.into_iter().enumerate() {
            if !trainable {
                assert!(grads[n].view().host().iter().all(|&g| g == 0.0));
                continue;
            }
            let what = format!("{name} {order:?} {epilogue:?} {param}");
            checked += check(&what, grads[n].view(), |i, delta| {
                nth(layer.as_mut(), n, |p| nudge(p, i, delta));
                let value = objective(layer.as_ref(), x.view());
                nth(layer.as_mut(), n, |p| nudge(p, i, -delta));
                value
            });
        }
        let what = format!("{name} {order:?} {epilogue:?} x");
        checked += check(&what, x_grad.view(), |i, delta| {
            x.view_mut().host()[i] += delta;
            let value = objective(layer.as_ref(), x.view());
            x.view_mut().host()[i] -= delta;
            value
        });
        checked.assert_all_but_one_in(6, &what);
    }

    /// Asserts that both orders compute the same function, with the same gradients.
    pub fn assert_orders_agree(&mut self) {
        let &[one, other] = self.orders() else { return };
        let (block, x, c) = self.inputs(8);
        let Self { name, layer, .. } = self;
        for epilogue in epilogues() {
            let [(y, grads, x_grad), (other_y, other_grads, other_x_grad)] = [one, other].map(|order| {
                backward(layer.as_mut(), &pass(true), &plain(order, &block, x.view()), epilogue, &c, true)
            });
            assert!(distance(y.view(), other_y.view()) < 1e-5, "{name}");
            assert!(distance(x_grad.view(), other_x_grad.view()) < 1e-5, "{name}");
            for (a, b) in grads.iter().zip(&other_grads) {
                assert!(distance(a.view(), b.view()) < 1e-5, "{name}");
            }
        }
    }

    /// Asserts that a global block over a table gives the rows and gradients of the local block, to
    /// the bit.
    pub fn assert_global_blocks_agree(&mut self) {
        let (block, x, c) = self.inputs(11);
        let (table_block, table) = global(&block, &x);
        let epilogue = epilogues()[1];
        let orders = self.orders();
        let Self { name, layer, .. } = self;
        for &order in orders {
            let local = plain(order, &block, x.view());
            let global = plain(order, &table_block, table.view());
            let [y, global_y] = [&local, &global]
                .map(|input| forward(layer.as_ref(), &pass(true), input, epilogue, &mut Saved::default()));
            assert_eq!(distance(y.view(), global_y.view()), 0.0, "{name} {order:?}");
            if order == ProductOrder::AggregateFirst {
                let [(_, grads, _), (_, global_grads, _)] = [&local, &global]
                    .map(|input| backward(layer.as_mut(), &pass(true), input, epilogue, &c, false));
                for (a, b) in grads.iter().zip(&global_grads) {
                    assert_eq!(distance(a.view(), b.view()), 0.0, "{name}");
                }
            }
        }
    }

    /// Asserts that gradients restricted to the first sources equal those among all, to the bit.
    pub fn assert_restricted_gradients_agree(&mut self) {
        let order = ProductOrder::AggregateFirst;
        if !self.orders().contains(&order) {
            return;
        }
        let (mut block, x, c) = self.inputs(18);
        let Self { name, layer, .. } = self;
        for epilogue in epilogues() {
            block.grad_src = None;
            block.transpose();
            let input = plain(order, &block, x.view());
            let (_, grads, x_grad) = backward(layer.as_mut(), &pass(true), &input, epilogue, &c, true);
            for wanting in [D, D + 2, S] {
                block.grad_src = Some(wanting);
                block.transpose();
                let input = plain(order, &block, x.view());
                let (_, some, x_some) = backward(layer.as_mut(), &pass(true), &input, epilogue, &c, true);
                assert_eq!(x_some.view().host(), x_grad.rows(0..wanting).host(), "{name} {wanting}");
                for (a, b) in grads.iter().zip(&some) {
                    assert_eq!(a.view().host(), b.view().host(), "{name} {wanting}");
                }
            }
        }
    }

    /// Asserts that a layer that transforms first rejects a block that leaves sources out of its
    /// gradients.
    pub fn assert_restriction_is_refused(&mut self) {
        let order = ProductOrder::TransformFirst;
        if !self.orders().contains(&order) {
            return;
        }
        let (mut block, x, c) = self.inputs(21);
        block.grad_src = Some(D);
        block.transpose();
        let Self { name, layer, .. } = self;
        let input = plain(order, &block, x.view());
        let run = || backward(layer.as_mut(), &pass(true), &input, Epilogue::NONE, &c, true);
        let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)).err();
        let panic = panic.unwrap_or_else(|| panic!("{name}: a panic about missing gradients"));
        let message = panic.downcast_ref::<String>().map_or("", String::as_str);
        assert!(message.contains("may_restrict"), "{name}: {message}");
    }

    /// Asserts that saved aggregates give the rows, and the gradients of the weights behind the
    /// aggregation.
    ///
    /// Parameters before the aggregation receive none: the backward pass of
    /// [`crate::layer::ReusableLayer`] leaves their gradients at zero.
    pub fn assert_aggregates_suffice(&mut self) {
        let (block, x, c) = self.inputs(24);
        let Self { name, layer, .. } = self;
        if layer.as_reusable().is_none() {
            return;
        }
        // uniform attention contributes no gradient of its own to the weights
        let is_attention = |p: &Param| ["source", "target"].contains(&p.name);
        layer.visit_mut(&mut |p| {
            if is_attention(p) {
                p.value.view_mut().host().fill(0.0);
            }
        });
        let pass = &pass(true);
        let input = plain(ProductOrder::AggregateFirst, &block, x.view());
        let (_, grads, _) = backward(layer.as_mut(), pass, &input, Epilogue::NONE, &c, false);
        let mut saved = Saved::default();
        let y = forward(layer.as_ref(), pass, &input, Epilogue::NONE, &mut saved);
        let reusable = layer.as_reusable_mut().expect("the mutable conversion succeeds too");
        let dims = reusable.aggregate_dims();
        let mut tables: Vec<Matrix> = dims.into_iter().map(|dim| Matrix::zeros(D + 2, dim)).collect();
        reusable.save_aggregates(pass, &input, &mut saved, 2, &mut tables);
        let rows = |m: &Matrix| Matrix::from_slice(D, m.num_cols(), m.rows(2..D + 2).host());
        let aggregates: Vec<Matrix> = tables.iter().map(rows).collect();
        let mut made = Matrix::zeros(D, y.num_cols());
        reusable.apply_aggregates(pass, &aggregates, &mut Saved::default(), made.view_mut());
        Epilogue::NONE.apply(&Reference, reusable.bias(), made.view_mut());
        assert!(distance(made.view(), y.view()) < 1e-5, "{name}: rows of saved aggregates");
        layer.visit_mut(&mut |p| p.zero_grad(&Reference));
        let reusable = layer.as_reusable_mut().expect("the mutable conversion succeeds too");
        reusable.backward_aggregates(pass, &aggregates, &mut Saved::default(), c.view());
        let mut n = 0;
        layer.visit(&mut |p| {
            let far = distance(p.grad.view(), grads[n].view());
            // the epilogue computes the bias gradient
            let apart = is_attention(p) || p.name == "bias";
            assert!(apart || far < 1e-5, "{name} {}: {far}", p.name);
            n += 1;
        });
    }

    /// Asserts that a second backward pass adds to the gradients of the first.
    pub fn assert_gradients_add_up(&mut self) {
        let (block, x, c) = self.inputs(14);
        let order = self.orders()[0];
        let Self { name, layer, .. } = self;
        let (pass, input) = (&pass(true), plain(order, &block, x.view()));
        let (_, once, _) = backward(layer.as_mut(), pass, &input, Epilogue::NONE, &c, true);
        let (mut saved, mut grad) = (Saved::default(), c.clone());
        let y = forward(layer.as_ref(), pass, &input, Epilogue::NONE, &mut saved);
        let grads = LayerGrads { y: y.view(), grad: &mut grad, x_grad: None };
        layer.run_backward(pass, &input, Epilogue::NONE, &mut saved, grads);
        let mut n = 0;
        layer.visit(&mut |p| {
            let twice: Vec<f32> = once[n].view().host().iter().map(|g| 2.0 * g).collect();
            let twice = Matrix::from_slice(p.grad.num_rows(), p.grad.num_cols(), &twice);
            assert!(distance(p.grad.view(), twice.view()) < 1e-4, "{name} {}", p.name);
            n += 1;
        });
    }

    /// Asserts that a block without destinations gives no rows and zero gradients.
    pub fn assert_empty_blocks(&mut self) {
        let orders = self.orders();
        let Self { name, layer, .. } = self;
        let mut block = Block { num_src: 3, indptr: vec![0], ..Block::default() };
        block.transpose();
        let (x, c) = (random(3, layer.spec().in_dim, 17), Matrix::zeros(0, layer.spec().out_dim));
        for &order in orders {
            let input = plain(order, &block, x.view());
            let (_, _, x_grad) = backward(layer.as_mut(), &pass(true), &input, Epilogue::NONE, &c, true);
            assert!(x_grad.view().host().iter().all(|&g| g == 0.0), "{name}");
        }
    }

    /// Asserts that a layer does not read own rows besides transformed ones if its spec denies it,
    /// nor besides their product if it has one.
    pub fn assert_own_rows_are_declared(&mut self) {
        let (order, spec) = (ProductOrder::TransformFirst, self.layer.spec());
        let has_product = spec.has_own_product;
        if !self.orders().contains(&order) || (spec.combines_own_rows && !has_product) {
            return;
        }
        let (block, x, _) = self.inputs(27);
        let Self { name, layer, .. } = self;
        let pass = &Pass { training: false, ..pass(true) };
        let input = plain(order, &block, x.view());
        let y = forward(layer.as_ref(), pass, &input, Epilogue::NONE, &mut Saved::default());
        let widths = &layer.spec().transformed;
        let mut tables: Vec<Matrix> = widths.iter().map(|&width| Matrix::zeros(S, width)).collect();
        layer.transform(pass, x.view(), 0, &mut tables);
        if has_product {
            let mut product = Matrix::zeros(D, layer.spec().out_dim);
            layer.own_product(pass, x.rows(0..D), product.view_mut());
            tables.push(product);
        }
        let mut unread = x.clone();
        unread.view_mut().host().fill(f32::NAN);
        let input = LayerInput { transformed: &tables, ..plain(order, &block, unread.view()) };
        let mut out = Matrix::zeros(D, layer.spec().out_dim);
        layer.forward(pass, &input, Epilogue::NONE, &mut Saved::default(), out.view_mut());
        // the reference rounds the product once more
        let bound = if has_product { 1e-5 } else { 0.0 };
        assert!(distance(out.view(), y.view()) <= bound, "{name}");
    }

    /// Asserts that the CPU backend gives the same bits for any number of threads.
    pub fn assert_threads_agree(&mut self) {
        let (rows, sources) = (700, 900);
        let orders = self.orders();
        let Self { name, layer, is_weighted } = self;
        let block = random_block(rows, sources, *is_weighted, 30);
        let (x, c) = (random(sources, layer.spec().in_dim, 31), random(rows, layer.spec().out_dim, 32));
        let backend: &dyn Backend = &Cpu::default();
        for &order in orders {
            let mut on_threads = |threads: usize| {
                let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("threads");
                let pass = Pass { backend, ..pass(true) };
                let input = plain(order, &block, x.view());
                pool.install(|| backward(layer.as_mut(), &pass, &input, epilogues()[1], &c, true))
            };
            let (y, grads, x_grad) = on_threads(1);
            for threads in [2, 3] {
                let (other_y, other_grads, other_x_grad) = on_threads(threads);
                let pairs = grads.iter().zip(&other_grads).chain([(&y, &other_y), (&x_grad, &other_x_grad)]);
                for (a, b) in pairs {
                    let bits = |m: &Matrix| m.view().host().iter().map(|x| x.to_bits()).collect::<Vec<_>>();
                    assert!(bits(a) == bits(b), "{name} {order:?} on {threads} threads");
                }
            }
        }
    }
}

//! A sampler of tests around another one.

use graphmill_core::{Result, typed::Schema};
use graphmill_loader::typed::{TypedRequest, TypedSampled, TypedSampler, TypedSeeds, TypedWorkspace};

/// Draws by `draw`, which may draw by `inner`; has the other properties of `inner`.
pub(super) struct WrappedSampler<D> {
    pub(super) inner: Box<dyn TypedSampler>,
    pub(super) draw: D,
}

impl<D> TypedSampler for WrappedSampler<D>
where
    D: Fn(&dyn TypedSampler, &TypedRequest, &mut TypedWorkspace, TypedSeeds) -> Result<TypedSampled>
        + Send
        + Sync,
{
    fn num_hops(&self) -> usize {
        self.inner.num_hops()
    }

    fn num_blocks(&self) -> usize {
        self.inner.num_blocks()
    }

    fn is_random(&self) -> bool {
        self.inner.is_random()
    }

    fn is_per_node(&self) -> bool {
        self.inner.is_per_node()
    }

    fn subgraphs(&self) -> Option<u64> {
        self.inner.subgraphs()
    }

    fn bytes(&self) -> u64 {
        self.inner.bytes()
    }

    fn follows(&self, schema: &Schema, hop: usize, r: usize) -> bool {
        self.inner.follows(schema, hop, r)
    }

    fn sample(
        &self,
        request: &TypedRequest,
        workspace: &mut TypedWorkspace,
        seeds: TypedSeeds,
    ) -> Result<TypedSampled> {
        (self.draw)(&*self.inner, request, workspace, seeds)
    }
}

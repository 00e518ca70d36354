//! The rows of a graph with times in memory.

use graphmill_core::{Result, memory};

use super::{
    relation::{RelationDraws, admit},
    source::{Admitted, OwnTimeRows, TimeDestinations, TimeDrawn, TimeHop, TimeSource},
};

impl TimeSource for OwnTimeRows<'_> {
    fn draw(
        &self,
        hop: &TimeHop,
        of: TimeDestinations,
        admitted: &mut Vec<Admitted>,
        drawn: TimeDrawn,
    ) -> Result<()> {
        admit(self, hop.relation, of.from(admitted.len()), admitted);
        RelationDraws::new(self, hop)?.draw(of, &admitted[..of.nodes.len()], drawn)
    }

    fn last_admitted(
        &self,
        relations: &[usize],
        of: TimeDestinations,
        admitted: &mut [Vec<Admitted>],
        out: &mut Vec<i64>,
    ) -> Result<()> {
        for &r in relations {
            admit(self, r, of.from(admitted[r].len()), &mut admitted[r]);
        }
        out.clear();
        if let [r] = *relations {
            // the end of the edges up to a time belongs to the time of the last one
            let ends = admitted[r][..of.nodes.len()].iter().map(|&[_, end]| i64::from(end));
            memory::demand_extend(out, ends);
            return Ok(());
        }
        memory::demand_len(out, of.nodes.len(), i64::MIN);
        for &r in relations {
            let (relation, index) = (self.graph.graph().relation(r), self.graph.time_index(r));
            for ((&v, &[_, end]), out) in of.nodes.iter().zip(&admitted[r]).zip(&mut *out) {
                if end > 0 {
                    *out = index.last_time(relation, v, end).max(*out);
                }
            }
        }
        Ok(())
    }
}

//! Native format.

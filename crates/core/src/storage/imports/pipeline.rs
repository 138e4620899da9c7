//! The batches of one import that are being written at the same time.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;

use super::turn::Turns;
use super::write::{Destination, write_batch_in_turn};
use super::{Batch, Position, WriteError};
use crate::domain::lease::Fence;
use crate::storage::Store;

type Ending = Pin<Box<dyn Future<Output = Result<Position, WriteError>> + Send>>;

/// Writes batches of one import beside each other, and commits them in their order.
pub struct Pipeline {
    store: Store,
    fence: Fence,
    to: Arc<Destination>,
    turns: Turns,
    writing: VecDeque<Writing>,
}

/// A batch that is being written.
struct Writing {
    batch: Arc<Batch>,
    /// How that ends; `None`: it was not written.
    ending: Option<Ending>,
}

impl std::fmt::Debug for Pipeline {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pipeline")
            .field("fence", &self.fence)
            .field("writing", &self.writing.len())
            .finish_non_exhaustive()
    }
}

impl Pipeline {
    /// An empty one for the batches of one run.
    pub fn new(store: Store, fence: Fence, to: Arc<Destination>) -> Self {
        Self {
            store,
            fence,
            to,
            turns: Turns::default(),
            writing: VecDeque::new(),
        }
    }

    /// How many batches are being written.
    pub fn len(&self) -> usize {
        self.writing.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.writing.is_empty()
    }

    /// Begins to write a batch, behind those that are being written.
    pub fn begin(&mut self, batch: Arc<Batch>) {
        let ending: Ending = Box::pin(write_batch_in_turn(
            &self.store,
            self.fence,
            Arc::clone(&batch),
            Arc::clone(&self.to),
            self.turns.draw(),
        ));
        let ending = Some(ending);
        self.writing.push_back(Writing { batch, ending });
    }

    /// How the first batch ends, which is no longer among them when it is written. Does not
    /// return while there is none. May be dropped and called again.
    ///
    /// # Errors
    /// As [`write_batch_in_turn`]. The batch is still the first one, and those behind it have
    /// lost their turns: [`Self::again`] writes all of them.
    pub async fn first(&mut self) -> Result<Position, WriteError> {
        let Some(first) = self.writing.front_mut() else {
            return std::future::pending().await;
        };
        let Some(ending) = &mut first.ending else {
            return Err(WriteError::Behind);
        };
        let ended = ending.await;
        if ended.is_ok() {
            self.writing.pop_front();
        } else {
            first.ending = None;
        }
        ended
    }

    /// Begins anew with all batches, after the first one was not written. So the batches that
    /// follow are stored before their turn again.
    pub async fn again(&mut self) {
        // Each has ended before it is begun again: it would wait for rows of its own.
        for writing in &mut self.writing {
            if let Some(ending) = &mut writing.ending {
                // Behind, as a rule. Whatever it is, the next try finds out.
                let _ = ending.await;
                writing.ending = None;
            }
        }
        self.turns = Turns::default();
        for Writing { batch, .. } in std::mem::take(&mut self.writing) {
            self.begin(batch);
        }
    }
}

//! Beginning, reading and steering bulk replays.

use tenure_core::Result;
use tenure_core::storage::dead_letters::BulkChange;
use tenure_proto::v1;
use uuid::Uuid;

use crate::DeadLetters;
use crate::convert;
use crate::page_token::{Binding, Place};

impl DeadLetters {
    pub(crate) async fn preview(
        &self,
        _: String,
        request: v1::PreviewBulkReplayRequest,
    ) -> Result<v1::PreviewBulkReplayResponse> {
        let filter = convert::bulk_filter(request.filter.as_ref())?;
        let preview = self.store.preview_bulk_replay(&filter).await?;
        let samples = preview.samples.into_iter();
        Ok(v1::PreviewBulkReplayResponse {
            matching: preview.matching,
            count_cap: preview.cap,
            not_replayable: preview.not_replayable,
            causes: preview
                .causes
                .into_iter()
                .map(convert::cause_count)
                .collect(),
            samples: samples.map(convert::dead_letter).collect(),
        })
    }

    pub(crate) async fn start(
        &self,
        caller: String,
        request: v1::StartBulkReplayRequest,
    ) -> Result<v1::StartBulkReplayResponse> {
        let asked = convert::new_bulk_replay(caller, request)?;
        let bulk = self.store.start_bulk_replay(&asked).await?;
        tracing::info!(bulk_replay = %bulk.id, actor = bulk.actor, matching = bulk.matching, "a bulk replay begins");
        self.started.notify_one();
        Ok(v1::StartBulkReplayResponse {
            bulk_replay: Some(convert::bulk_replay(bulk)),
        })
    }

    pub(crate) async fn get_bulk(
        &self,
        _: String,
        request: v1::GetBulkReplayRequest,
    ) -> Result<v1::GetBulkReplayResponse> {
        let id = convert::id("bulk_replay_id", &request.bulk_replay_id)?;
        let bulk = self.store.get_bulk_replay(id).await?;
        let actions = self.store.bulk_replay_actions(id).await?;
        Ok(v1::GetBulkReplayResponse {
            bulk_replay: Some(convert::bulk_replay(bulk)),
            actions: actions.into_iter().map(convert::bulk_action).collect(),
        })
    }

    pub(crate) async fn list_bulk(
        &self,
        _: String,
        request: v1::ListBulkReplaysRequest,
    ) -> Result<v1::ListBulkReplaysResponse> {
        let size = convert::page_size(request.page_size)?;
        let binding = Binding::new("bulk replays", &())?;
        let before = binding.decode(&request.page_token)?.map(|place| place.id);
        let (page, more) = self.store.list_bulk_replays(before, size).await?;
        let next = page.last().filter(|_| more).map(|bulk| Place {
            number: 0,
            id: bulk.id,
        });
        Ok(v1::ListBulkReplaysResponse {
            bulk_replays: page.into_iter().map(convert::bulk_replay).collect(),
            next_page_token: next.map(|place| binding.encode(place)).unwrap_or_default(),
        })
    }

    pub(crate) async fn control(
        &self,
        caller: String,
        request: v1::ControlBulkReplayRequest,
    ) -> Result<v1::ControlBulkReplayResponse> {
        let id = convert::id("bulk_replay_id", &request.bulk_replay_id)?;
        let change = convert::bulk_change(&request)?;
        let decision = convert::decision(caller, request.reason)?;
        let bulk = self
            .store
            .control_bulk_replay(id, change, &decision)
            .await?;
        tracing::info!(bulk_replay = %id, ?change, actor = decision.actor, "a bulk replay is steered");
        if matches!(change, BulkChange::Resume(_) | BulkChange::SetRate(_)) {
            self.started.notify_one();
        }
        Ok(v1::ControlBulkReplayResponse {
            bulk_replay: Some(convert::bulk_replay(bulk)),
        })
    }

    pub(crate) async fn outcomes(
        &self,
        _: String,
        request: v1::ListBulkReplayOutcomesRequest,
    ) -> Result<v1::ListBulkReplayOutcomesResponse> {
        let id = convert::id("bulk_replay_id", &request.bulk_replay_id)?;
        let size = convert::page_size(request.page_size)?;
        let only = convert::outcome_filter(request.outcome)?;
        let binding = Binding::new("outcomes", &(id, request.outcome))?;
        let after = binding
            .decode(&request.page_token)?
            .map_or(0, |place| place.number);
        let (page, next) = self
            .store
            .bulk_replay_outcomes(id, only, after, size)
            .await?;
        let outcomes = page.into_iter().map(|outcome| outcome.result);
        Ok(v1::ListBulkReplayOutcomesResponse {
            results: outcomes.map(convert::result).collect(),
            next_page_token: next
                .map(|number| {
                    binding.encode(Place {
                        number,
                        id: Uuid::nil(),
                    })
                })
                .unwrap_or_default(),
        })
    }
}

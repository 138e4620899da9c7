//! Reading letters and causes, and deciding about letters.

use chrono::DateTime;
use tenure_core::Result;
use tenure_core::domain::ids::DeadLetterId;
use tenure_core::storage::dead_letters::{CauseCursor, CauseOrder, DeadLetterCursor, Order, Verb};
use tenure_proto::v1;

use crate::DeadLetters;
use crate::convert;
use crate::page_token::{Binding, Place};

impl DeadLetters {
    pub(crate) async fn list(
        &self,
        _: String,
        request: v1::ListDeadLettersRequest,
    ) -> Result<v1::ListDeadLettersResponse> {
        let size = convert::page_size(request.page_size)?;
        let filter = convert::list_filter(&request)?;
        let order = convert::list_order(request.order)?;
        let binding = Binding::new("letters", &(&filter, order == Order::LatestFirst))?;
        let after = binding.decode(&request.page_token)?.and_then(cursor);
        let page = self
            .store
            .list_dead_letters(&filter, order, after, size)
            .await?;
        Ok(v1::ListDeadLettersResponse {
            dead_letters: page.letters.into_iter().map(convert::dead_letter).collect(),
            next_page_token: page
                .next
                .map(|cursor| {
                    binding.encode(Place {
                        number: cursor.last_failed_at.timestamp_micros(),
                        id: cursor.id.uuid(),
                    })
                })
                .unwrap_or_default(),
        })
    }

    pub(crate) async fn get(
        &self,
        _: String,
        request: v1::GetDeadLetterRequest,
    ) -> Result<v1::GetDeadLetterResponse> {
        let id = convert::id("dead_letter_id", &request.dead_letter_id)?;
        let story = self.store.dead_letter_story(id).await?;
        let timeline = story.timeline.into_iter();
        Ok(v1::GetDeadLetterResponse {
            dead_letter: Some(convert::dead_letter(story.letter)),
            actions: story.actions.into_iter().map(convert::action).collect(),
            timeline: timeline.map(convert::event).collect(),
        })
    }

    pub(crate) async fn causes(
        &self,
        _: String,
        request: v1::ListDeadLetterCausesRequest,
    ) -> Result<v1::ListDeadLetterCausesResponse> {
        let size = convert::page_size(request.page_size)?;
        let filter = convert::cause_filter(&request)?;
        let order = convert::cause_order(request.order)?;
        let number = match order {
            CauseOrder::Open => 0,
            CauseOrder::LatestFirst => 1,
            CauseOrder::NewestFirst => 2,
        };
        let asked = (
            number,
            &filter.queue,
            &filter.job_type,
            &filter.error_code,
            filter.include_closed,
        );
        let binding = Binding::new("causes", &asked)?;
        let after = binding
            .decode(&request.page_token)?
            .map(|place| CauseCursor {
                key: place.number,
                id: place.id,
            });
        let (causes, next) = self.store.list_causes(&filter, order, after, size).await?;
        Ok(v1::ListDeadLetterCausesResponse {
            causes: causes.into_iter().map(convert::cause).collect(),
            next_page_token: next
                .map(|cursor| {
                    binding.encode(Place {
                        number: cursor.key,
                        id: cursor.id,
                    })
                })
                .unwrap_or_default(),
        })
    }

    pub(crate) async fn replay(
        &self,
        caller: String,
        request: v1::ReplayDeadLettersRequest,
    ) -> Result<v1::ReplayDeadLettersResponse> {
        let ids = convert::letter_ids(&request.dead_letter_ids)?;
        let decision = convert::decision(caller, request.reason)?;
        let results = self.store.replay_dead_letters(&ids, &decision).await?;
        Ok(v1::ReplayDeadLettersResponse {
            results: results.into_iter().map(convert::result).collect(),
        })
    }

    pub(crate) async fn ignore(
        &self,
        caller: String,
        request: v1::IgnoreDeadLettersRequest,
    ) -> Result<v1::IgnoreDeadLettersResponse> {
        let (ids, reason) = (request.dead_letter_ids, request.reason);
        let results = self.decide(Verb::Ignore, caller, &ids, reason).await?;
        Ok(v1::IgnoreDeadLettersResponse { results })
    }

    pub(crate) async fn resolve(
        &self,
        caller: String,
        request: v1::ResolveDeadLettersRequest,
    ) -> Result<v1::ResolveDeadLettersResponse> {
        let (ids, reason) = (request.dead_letter_ids, request.reason);
        let results = self.decide(Verb::Resolve, caller, &ids, reason).await?;
        Ok(v1::ResolveDeadLettersResponse { results })
    }

    pub(crate) async fn reopen(
        &self,
        caller: String,
        request: v1::ReopenDeadLettersRequest,
    ) -> Result<v1::ReopenDeadLettersResponse> {
        let (ids, reason) = (request.dead_letter_ids, request.reason);
        let results = self.decide(Verb::Reopen, caller, &ids, reason).await?;
        Ok(v1::ReopenDeadLettersResponse { results })
    }

    async fn decide(
        &self,
        verb: Verb,
        caller: String,
        ids: &[String],
        reason: String,
    ) -> Result<Vec<v1::DeadLetterResult>> {
        let ids = convert::letter_ids(ids)?;
        let decision = convert::decision(caller, reason)?;
        let results = self
            .store
            .decide_dead_letters(verb, &ids, &decision)
            .await?;
        Ok(results.into_iter().map(convert::result).collect())
    }
}

/// The place of a letter. A token is made of one, so that its number is a time.
fn cursor(place: Place) -> Option<DeadLetterCursor> {
    Some(DeadLetterCursor {
        last_failed_at: DateTime::from_timestamp_micros(place.number)?,
        id: DeadLetterId(place.id),
    })
}

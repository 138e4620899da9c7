//! Lists of letters by the time of their last failure, a page at a time.
//!
//! A page looks at a bounded number of rows along one index: where the rest of the filter
//! matches few of them, it comes back short (even empty) with the place to go on from.

use chrono::{DateTime, Utc};
use sqlx::PgConnection;
use uuid::Uuid;

use super::filter::Driver;
use super::{DeadLetterCursor, DeadLetterFilter, DeadLetterPage, DeadLetterRow, Order, columns};
use crate::domain::ids::DeadLetterId;
use crate::error::Result;
use crate::storage::{Store, db_error};

/// The rows that one page may cost. A rare error code among many letters thus takes
/// more pages, some of them short, and never one slow statement.
pub const EXAMINED_PER_PAGE: i64 = 10_000;

/// Where a scan begins: behind the cursor, or at the end that comes first.
macro_rules! begin {
    (desc) => {
        "(last_failed_at, id) < (coalesce($1::timestamptz, 'infinity'), \
         coalesce($2::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff'))"
    };
    (asc) => {
        "(last_failed_at, id) > (coalesce($1::timestamptz, '-infinity'), \
         coalesce($2::uuid, '00000000-0000-0000-0000-000000000000'))"
    };
}
/// Where a page ends at the latest: with the last row that it may examine.
macro_rules! end {
    (desc) => {
        "(last_failed_at, id) >= (coalesce($3::timestamptz, '-infinity'), \
         coalesce($4::uuid, '00000000-0000-0000-0000-000000000000'))"
    };
    (asc) => {
        "(last_failed_at, id) <= (coalesce($3::timestamptz, 'infinity'), \
         coalesce($4::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff'))"
    };
}
/// The last row that a page may examine, by the index alone.
macro_rules! bound {
    ($driver:literal, $order:ident) => {
        concat!(
            "select last_failed_at, id from dead_letters where ",
            $driver,
            " and ",
            begin!($order),
            " and last_failed_at >= coalesce($5::timestamptz, '-infinity') \
             and last_failed_at < coalesce($6::timestamptz, 'infinity') order by last_failed_at ",
            stringify!($order),
            ", id ",
            stringify!($order),
            " offset $3::bigint - 1 limit 1"
        )
    };
}
macro_rules! page {
    ($columns:expr, $driver:literal, $order:ident) => {
        concat!(
            "select ",
            $columns,
            " from dead_letters d where ",
            $driver,
            " and ",
            begin!($order),
            " and ",
            end!($order),
            " and ($5::text[] is null or status = any($5)) and ($6::text is null or queue_name = $6) \
             and ($7::text is null or job_type = $7) and ($8::text is null or user_id = $8) \
             and ($9::text is null or error_code = $9) and ($10::text is null or error_class = $10) \
             and ($11::uuid is null or cause_id = $11) \
             and last_failed_at >= coalesce($12::timestamptz, '-infinity') \
             and last_failed_at < coalesce($13::timestamptz, 'infinity') \
             and ($14::text is null or strpos(lower(error_message), lower($14)) > 0) order by last_failed_at ",
            stringify!($order),
            ", id ",
            stringify!($order),
            " limit $15"
        )
    };
}
macro_rules! keys {
    () => {
        "id, last_failed_at"
    };
}
macro_rules! listed {
    () => {
        concat!(columns!(), ", null::bytea as payload")
    };
}

/// The statements of one driver.
struct Family {
    bound_latest: &'static str,
    bound_oldest: &'static str,
    latest: &'static str,
    oldest: &'static str,
    /// The oldest first, and only their places.
    keys: &'static str,
}

macro_rules! family {
    ($bound:literal, $page:literal) => {
        Family {
            bound_latest: bound!($bound, desc),
            bound_oldest: bound!($bound, asc),
            latest: page!(listed!(), $page, desc),
            oldest: page!(listed!(), $page, asc),
            keys: page!(keys!(), $page, asc),
        }
    };
}

const BY_CAUSE: Family = family!("cause_id = ($4::text)::uuid", "cause_id = $11");
const BY_USER: Family = family!("user_id = $4::text", "user_id = $8");
const BY_TYPE: Family = family!("job_type = $4::text", "job_type = $7");
const BY_OPEN: Family = family!("status = 'open' and $4::text is null", "status = 'open'");
const BY_TIME: Family = family!("$4::text is null", "true");

pub(super) const STATEMENTS: &[(&str, &str)] = &[
    ("dead_letters_bound_cause", BY_CAUSE.bound_latest),
    ("dead_letters_bound_cause_oldest", BY_CAUSE.bound_oldest),
    ("dead_letters_list_cause", BY_CAUSE.latest),
    ("dead_letters_list_cause_oldest", BY_CAUSE.oldest),
    ("dead_letters_keys_cause", BY_CAUSE.keys),
    ("dead_letters_bound_user", BY_USER.bound_latest),
    ("dead_letters_bound_user_oldest", BY_USER.bound_oldest),
    ("dead_letters_list_user", BY_USER.latest),
    ("dead_letters_list_user_oldest", BY_USER.oldest),
    ("dead_letters_keys_user", BY_USER.keys),
    ("dead_letters_bound_type", BY_TYPE.bound_latest),
    ("dead_letters_bound_type_oldest", BY_TYPE.bound_oldest),
    ("dead_letters_list_type", BY_TYPE.latest),
    ("dead_letters_list_type_oldest", BY_TYPE.oldest),
    ("dead_letters_keys_type", BY_TYPE.keys),
    ("dead_letters_bound_open", BY_OPEN.bound_latest),
    ("dead_letters_bound_open_oldest", BY_OPEN.bound_oldest),
    ("dead_letters_list_open", BY_OPEN.latest),
    ("dead_letters_list_open_oldest", BY_OPEN.oldest),
    ("dead_letters_keys_open", BY_OPEN.keys),
    ("dead_letters_bound_time", BY_TIME.bound_latest),
    ("dead_letters_bound_time_oldest", BY_TIME.bound_oldest),
    ("dead_letters_list_time", BY_TIME.latest),
    ("dead_letters_list_time_oldest", BY_TIME.oldest),
    ("dead_letters_keys_time", BY_TIME.keys),
];

impl Driver {
    fn family(self) -> &'static Family {
        match self {
            Self::Cause => &BY_CAUSE,
            Self::User => &BY_USER,
            Self::Type => &BY_TYPE,
            Self::Open => &BY_OPEN,
            Self::All => &BY_TIME,
        }
    }
}

/// A scan along an index: its filter, its direction, from where and how far.
pub(super) struct Scan<'a> {
    pub(super) filter: &'a DeadLetterFilter,
    pub(super) order: Order,
    pub(super) after: Option<DeadLetterCursor>,
    pub(super) limit: u32,
    pub(super) examined: i64,
}

/// The place of a letter.
type Place = (DateTime<Utc>, Uuid);

impl Scan<'_> {
    /// The end of the page, where it has to be bounded.
    ///
    /// The bound is read first: rows that leave the range meanwhile make the page
    /// shorter, and none is skipped.
    async fn bound(&self, connection: &mut PgConnection) -> Result<Option<Place>, sqlx::Error> {
        let driver = Driver::of(self.filter);
        // Where the index finds all that matches, every examined row is an answer, and
        // the limit bounds them.
        if self.filter.rest(driver).is_empty() {
            return Ok(None);
        }
        let sql = match self.order {
            Order::LatestFirst => driver.family().bound_latest,
            Order::OldestFirst => driver.family().bound_oldest,
        };
        sqlx::query_as(sql)
            .bind(self.after.map(|cursor| cursor.last_failed_at))
            .bind(self.after.map(|cursor| cursor.id.uuid()))
            .bind(self.examined.max(1))
            .bind(driver.value(self.filter))
            .bind(self.filter.failed_from)
            .bind(self.filter.failed_before)
            .fetch_optional(connection)
            .await
    }

    async fn rows<R>(
        &self,
        connection: &mut PgConnection,
        sql: &'static str,
        bound: Option<Place>,
    ) -> Result<Vec<R>, sqlx::Error>
    where
        R: for<'r> sqlx::FromRow<'r, sqlx::postgres::PgRow> + Send + Unpin,
    {
        let filter = self.filter;
        let statuses: Option<Vec<&str>> = (!filter.statuses.is_empty()).then(|| {
            filter
                .statuses
                .iter()
                .map(|status| status.as_str())
                .collect()
        });
        let class = filter
            .temporary
            .map(|temporary| if temporary { "temporary" } else { "permanent" });
        sqlx::query_as(sql)
            .bind(self.after.map(|cursor| cursor.last_failed_at))
            .bind(self.after.map(|cursor| cursor.id.uuid()))
            .bind(bound.map(|(at, _)| at))
            .bind(bound.map(|(_, id)| id))
            .bind(statuses)
            .bind(&filter.queue)
            .bind(&filter.job_type)
            .bind(&filter.user_id)
            .bind(&filter.error_code)
            .bind(class)
            .bind(filter.cause_id)
            .bind(filter.failed_from)
            .bind(filter.failed_before)
            .bind(&filter.text)
            .bind(i64::from(self.limit) + 1)
            .fetch_all(connection)
            .await
    }

    /// The places of the letters, and from where on there may be more.
    pub(super) async fn keys(
        &self,
        connection: &mut PgConnection,
    ) -> Result<(Vec<DeadLetterCursor>, Option<DeadLetterCursor>), sqlx::Error> {
        let bound = self.bound(connection).await?;
        let sql = Driver::of(self.filter).family().keys;
        let rows: Vec<(Uuid, DateTime<Utc>)> = self.rows(connection, sql, bound).await?;
        let mut keys: Vec<_> = rows.into_iter().map(|(id, at)| cursor((at, id))).collect();
        let next = if keys.len() > self.limit as usize {
            keys.truncate(self.limit as usize);
            keys.last().copied()
        } else {
            bound.map(cursor)
        };
        Ok((keys, next))
    }

    async fn page(
        &self,
        connection: &mut PgConnection,
    ) -> Result<(Vec<DeadLetterRow>, Option<DeadLetterCursor>), sqlx::Error> {
        let bound = self.bound(connection).await?;
        let family = Driver::of(self.filter).family();
        let sql = match self.order {
            Order::LatestFirst => family.latest,
            Order::OldestFirst => family.oldest,
        };
        let mut rows: Vec<DeadLetterRow> = self.rows(connection, sql, bound).await?;
        let next = if rows.len() > self.limit as usize {
            rows.truncate(self.limit as usize);
            rows.last().map(|row| (row.last_failed_at, row.id))
        } else {
            bound
        };
        Ok((rows, next.map(cursor)))
    }
}

fn cursor((last_failed_at, id): Place) -> DeadLetterCursor {
    DeadLetterCursor {
        last_failed_at,
        id: DeadLetterId(id),
    }
}

impl Store {
    /// A page of at most `limit` letters in this order, from `after` on. A letter whose
    /// job fails again while a list is read moves to its latest end.
    ///
    /// # Errors
    /// DATABASE_UNAVAILABLE.
    pub async fn list_dead_letters(
        &self,
        filter: &DeadLetterFilter,
        order: Order,
        after: Option<DeadLetterCursor>,
        limit: u32,
    ) -> Result<DeadLetterPage> {
        self.list_dead_letters_bounded(filter, order, after, limit, EXAMINED_PER_PAGE)
            .await
    }

    /// The same with the bound on examined rows given, so that a test need not write
    /// ten thousand of them.
    #[doc(hidden)]
    pub async fn list_dead_letters_bounded(
        &self,
        filter: &DeadLetterFilter,
        order: Order,
        after: Option<DeadLetterCursor>,
        limit: u32,
        examined: i64,
    ) -> Result<DeadLetterPage> {
        let scan = Scan {
            filter,
            order,
            after,
            limit,
            examined,
        };
        let mut connection = self.pool().acquire().await.map_err(db_error)?;
        let (rows, next) = scan.page(&mut connection).await.map_err(db_error)?;
        Ok(DeadLetterPage {
            letters: rows
                .into_iter()
                .map(DeadLetterRow::into_letter)
                .collect::<Result<_>>()?,
            next,
        })
    }
}

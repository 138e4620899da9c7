//! The storage on a real PostgreSQL, with a database for each test.

mod dead_letters;
mod migrate;
mod statements;

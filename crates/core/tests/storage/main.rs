//! The storage on a real PostgreSQL, with a database for each test.

mod dead_letters;
mod imports;
mod migrate;
mod statements;
mod workers;

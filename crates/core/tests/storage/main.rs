//! The storage on a real PostgreSQL, with a database for each test.

mod dead_letters;
mod files;
mod imports;
mod migrate;
mod object_store;
mod statements;

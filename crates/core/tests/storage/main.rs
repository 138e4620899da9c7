//! The storage on a real PostgreSQL, with a database for each test.

mod alerts;
mod bulk_replays;
mod bulk_steering;
mod datasets;
mod dead_letter_causes;
mod dead_letter_notes;
mod dead_letter_verbs;
mod dead_letters;
mod files;
mod import_prune;
mod import_tables;
mod import_turns;
mod import_world;
mod imports;
mod letters_world;
mod migrate;
mod object_store;
mod retention;
mod statements;
mod unreadable;
mod workers;

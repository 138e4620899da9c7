-- A user's inbox, newest first, and what of it is not read yet.
create index notifications_inbox on notifications (user_id, id);
create index notifications_unread on notifications (user_id, id) where read_at is null;

update schema_info set version = 4;

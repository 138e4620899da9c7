use serde_json::{Value, json};

use super::*;

fn column(name: &str, base: &str) -> TableColumn {
    TableColumn {
        name: name.into(),
        type_schema: "pg_catalog".into(),
        type_name: base.into(),
        base: base.into(),
        not_null: false,
        has_default: false,
        generated: false,
    }
}

fn info() -> TableInfo {
    let not_null = |name: &str, base: &str| TableColumn {
        not_null: true,
        ..column(name, base)
    };
    TableInfo {
        columns: vec![
            TableColumn {
                has_default: true,
                generated: true,
                ..not_null("id", "int8")
            },
            not_null("email", "text"),
            column("Born", "date"),
            column("paid", "numeric"),
            TableColumn {
                has_default: true,
                ..not_null("seen", "timestamptz")
            },
            not_null("owner", "text"),
        ],
        keys: vec![vec!["id".into()], vec!["email".into(), "owner".into()]],
        may_insert: true,
        may_update: true,
    }
}

type Fit = Result<(TableSpec, Vec<Column>), String>;

fn fit_to(info: &TableInfo, names: &[&str], declared: bool, target: Value) -> Fit {
    let target: Target = serde_json::from_value(target).expect("a target");
    let tables = [ImportTable::parse("crm.contacts(owner)").expect("an entry")];
    let mut columns: Vec<(usize, Column)> = names
        .iter()
        .map(|name| Column {
            name: (*name).to_owned(),
            ..Column::default()
        })
        .enumerate()
        .collect();
    let user = UserId::from_stored("ada".into());
    allowed(&tables, &target)
        .and_then(|entry| fit(&target, entry, info, &mut columns, declared, &user))
        .map(|spec| (spec, columns.into_iter().map(|(_, c)| c).collect()))
        .map_err(|error| {
            assert_eq!(error.code, "IMPORT_TARGET_INVALID");
            error.message
        })
}

fn fitted(names: &[&str], more: Value) -> Fit {
    let mut target = json!({"table": "crm.contacts"});
    for (key, value) in more.as_object().expect("an object") {
        target[key] = value.clone();
    }
    fit_to(&info(), names, false, target)
}

#[test]
fn columns_take_type_and_duty_from_the_table() {
    let names = ["EMAIL", "born", "Geld"];
    let (spec, columns) = fitted(&names, json!({"columns": {"geld": "paid"}})).expect("fits");
    let fields: Vec<_> = spec
        .fields
        .iter()
        .map(|f| (f.from.as_str(), f.to.as_str()))
        .collect();
    assert_eq!(
        fields,
        [("EMAIL", "email"), ("born", "Born"), ("Geld", "paid")]
    );
    assert_eq!(spec.user, Some(("owner".into(), "ada".into())));
    assert!(spec.key.is_empty());
    let told: Vec<_> = columns.iter().map(|c| (c.kind, c.required)).collect();
    assert_eq!(
        told,
        [
            (ColumnType::Text, true),
            (ColumnType::Date, false),
            (ColumnType::Decimal, false),
        ]
    );
    let target = json!({"table": "crm.contacts"});
    let (_, columns) = fit_to(&info(), &["email", "born"], true, target).expect("fits");
    assert_eq!(columns[1].kind, ColumnType::Text, "it was declared so");
}

#[test]
fn the_users_column_is_part_of_each_key() {
    for key in [json!(["email"]), json!(["owner", "email"])] {
        let upsert = json!({"mode": "upsert", "key": key});
        let (spec, columns) = fitted(&["email", "seen"], upsert).expect("fits");
        assert_eq!(spec.key, ["email", "owner"]);
        assert!(columns[0].required && columns[1].required);
    }
}

#[test]
fn what_does_not_fit_is_told_before_the_first_row() {
    let told = |names: &[&str], more: Value, text: &str| {
        let message = fitted(names, more).expect_err(text);
        assert!(message.contains(text), "{message}");
    };
    told(&["email", "phone"], json!({}), "no column 'phone'");
    told(
        &["email"],
        json!({"columns": {"mail": "email"}}),
        "'mail' is not a column",
    );
    told(
        &["email"],
        json!({"columns": {"email": "EMAIL"}}),
        "no column 'EMAIL'",
    );
    let both = json!({"columns": {"mail": "email"}});
    told(&["email", "mail"], both, "'email' and 'mail' both");
    told(
        &["email", "id"],
        json!({}),
        "'id' of the table is generated",
    );
    told(&["email", "owner"], json!({}), "filled with the user's id");
    told(&["born"], json!({}), "must have a value in 'email'");
    told(&["email"], json!({"key": ["email"]}), "belongs to the mode");
    told(&["email"], json!({"mode": "upsert"}), "needs the columns");
    let born = json!({"mode": "upsert", "key": ["Born"]});
    told(
        &["email", "born"],
        born,
        "no unique index over just 'Born', 'owner'",
    );
    // Without the user's column the index would do; with it, it does not.
    let id = json!({"mode": "upsert", "key": ["id"]});
    told(&["email"], id, "no unique index");
    told(
        &["email"],
        json!({"table": "crm.secrets"}),
        "may not write to 'crm.secrets'",
    );
    told(
        &["email"],
        json!({"table": "crm.contacts(owner)"}),
        "may not write",
    );

    let mut locked = info();
    locked.may_update = false;
    let target = json!({"table": "crm.contacts", "mode": "upsert", "key": ["email"]});
    let message = fit_to(&locked, &["email"], false, target).expect_err("no right");
    assert!(
        message.contains("may not insert into and update"),
        "{message}"
    );
}

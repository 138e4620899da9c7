use serde_json::{Value, json};

use super::*;

fn column(name: &str, base: &str) -> TableColumn {
    TableColumn {
        name: name.into(),
        type_schema: "pg_catalog".into(),
        type_name: base.into(),
        modifier: -1,
        not_null: false,
        has_default: false,
        generated: false,
        exact: true,
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
        has_rules: false,
    }
}

type Fit = Result<(TableSpec, Vec<Column>), String>;

fn fit_to(info: &TableInfo, names: &[&str], kind: Option<ColumnType>, target: Value) -> Fit {
    fit_by("crm.contacts(owner)", info, names, kind, target)
}

fn fit_by(
    entry: &str,
    info: &TableInfo,
    names: &[&str],
    kind: Option<ColumnType>,
    target: Value,
) -> Fit {
    let target: Target = serde_json::from_value(target).expect("a target");
    let tables = [ImportTable::parse(entry).expect("an entry")];
    let mut columns: Vec<(usize, Column)> = names
        .iter()
        .map(|name| Column {
            name: (*name).to_owned(),
            kind,
            ..Column::default()
        })
        .enumerate()
        .collect();
    let user = UserId::from_stored("ada".into());
    allowed(&tables, &target)
        .and_then(|entry| fit(&target, entry, info, &mut columns, &user))
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
    fit_to(&info(), names, None, target)
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
    let told: Vec<_> = columns.iter().map(|c| (c.kind(), c.required)).collect();
    assert_eq!(
        told,
        [
            (ColumnType::Text, true),
            (ColumnType::Date, false),
            (ColumnType::Decimal, false),
        ]
    );
    let target = json!({"table": "crm.contacts"});
    let text = Some(ColumnType::Text);
    fit_to(&info(), &["email"], text, target.clone()).expect("fits");
    // PostgreSQL would read a text as a date by its own rules.
    let message = fit_to(&info(), &["email", "born"], text, target).expect_err("text");
    assert!(message.contains("declare it as date"), "{message}");
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
    let message = fit_to(&locked, &["email"], None, target).expect_err("no right");
    assert!(
        message.contains("may not insert into and update"),
        "{message}"
    );
}

#[test]
fn a_table_that_would_change_values_is_refused() {
    let target = json!({"table": "crm.contacts"});
    for (base, text) in [
        ("timestamp", "timestamp with time zone"),
        ("time", "read differently"),
        ("interval", "read differently"),
        ("money", "read differently"),
        ("_date", "read differently"),
        ("char", "one byte"),
    ] {
        let mut info = info();
        info.columns.push(column("extra", base));
        let message = fit_to(&info, &["email", "extra"], None, target.clone()).expect_err(base);
        assert!(message.contains(text), "{message}");
    }
    // A type of somebody's own that happens to have such a name is judged by itself.
    let mut other = info();
    other.columns.push(TableColumn {
        type_schema: "crm".into(),
        ..column("extra", "date")
    });
    let (_, columns) = fit_to(&other, &["email", "extra"], None, target.clone()).expect("fits");
    assert_eq!(columns[1].kind(), ColumnType::Text);

    let mut ruled = info();
    ruled.has_rules = true;
    let message = fit_to(&ruled, &["email"], None, target).expect_err("rules");
    assert!(message.contains("has rules"), "{message}");
}

#[test]
fn a_scale_is_taken_along() {
    let mut info = info();
    for (name, modifier) in [
        ("two", (8 << 16) + 2 + 4),
        ("hundreds", (8 << 16) + (0x7ff & -2) + 4),
    ] {
        info.columns.push(TableColumn {
            modifier,
            ..column(name, "numeric")
        });
    }
    let target = json!({"table": "crm.contacts"});
    let names = ["email", "paid", "two", "hundreds"];
    let (spec, _) = fit_to(&info, &names, None, target).expect("fits");
    let scales: Vec<_> = spec.fields.iter().map(|field| field.scale).collect();
    assert_eq!(scales, [None, None, Some(2), Some(-2)]);
}

#[test]
fn users_are_kept_apart() {
    let insert = json!({"table": "crm.contacts"});
    for (entry, kind, exact) in [
        ("crm.contacts(nobody)", "text", true),
        ("crm.contacts(owner)", "int8", true),
        ("crm.contacts(owner)", "text", false),
    ] {
        let mut info = info();
        let owner = info.columns.last_mut().expect("a column");
        owner.type_name = kind.into();
        owner.exact = exact;
        let message = fit_by(entry, &info, &["email"], None, insert.clone()).expect_err(entry);
        assert!(message.contains("for the user's id"), "{message}");
    }
    let mut info = info();
    info.keys.push(vec!["email".into()]);
    let names = ["email", "owner"];
    let upsert = json!({"table": "crm.contacts", "mode": "upsert", "key": ["email"]});
    let message = fit_by("crm.contacts", &info, &names, None, upsert.clone()).expect_err("open");
    assert!(message.contains("rows of other users"), "{message}");
    fit_by("crm.contacts", &info, &names, None, insert).expect("inserts change nothing");
    let (spec, _) = fit_by("crm.contacts(*)", &info, &names, None, upsert).expect("shared");
    assert_eq!(spec.user, None);
}

use serde_json::json;

use super::*;

fn compiled(schema: &Value) -> PayloadSchema {
    PayloadSchema::compile(&schema.to_string()).expect("a schema")
}

fn told(schema: &Value, payload: &Value) -> Vec<(String, String)> {
    compiled(schema)
        .misfits(payload)
        .into_iter()
        .map(|misfit| (misfit.path, misfit.description))
        .collect()
}

fn refused(schema: &str) -> String {
    PayloadSchema::compile(schema).expect_err(schema)
}

#[test]
fn misfits_are_told_by_path_and_never_by_value() {
    let schema = json!({
        "$schema": DRAFT,
        "$id": "https://schemas.example/import",
        "type": "object",
        "required": ["file_id"],
        "additionalProperties": false,
        "properties": {
            "file_id": {"type": "string", "pattern": "^[0-9a-f-]{36}$", "description": "A file's id."},
            "columns": {"type": "array", "maxItems": 2, "items": {"$ref": "#/$defs/column"}},
            "mode": {"enum": ["append", "replace"]},
            "percent": {"type": ["number", "null"], "maximum": 100}
        },
        "$defs": {"column": {
            "type": "object",
            "required": ["name"],
            "properties": {"name": {"type": "string"}, "type": {"const": "text"}}
        }}
    });
    assert_eq!(
        told(
            &schema,
            &json!({"file_id": "0".repeat(36), "columns": [], "mode": "append", "percent": null})
        ),
        []
    );
    let secret = "hunter2";
    let found = told(
        &schema,
        &json!({
            "file_id": secret,
            "columns": [{"type": secret}, {"name": 7}, {"name": ""}],
            "mode": secret,
            "percent": 1e300,
            "odd \u{1b}name": secret
        }),
    );
    let mut paths: Vec<&str> = found.iter().map(|(path, _)| path.as_str()).collect();
    paths.sort_unstable();
    assert_eq!(
        paths,
        [
            ".columns",
            ".columns[0].name",
            ".columns[0].type",
            ".columns[1].name",
            ".file_id",
            ".mode",
            ".percent",
            "[\"odd \u{fffd}name\"]"
        ]
    );
    let all = format!("{found:?}");
    assert!(!all.contains(secret) && !all.contains("1e300"), "{all}");
    for said in [
        "is required",
        "must be \\\"text\\\"",
        "must be of the type string",
        "(A file's id)",
        "must be one of \\\"append\\\", \\\"replace\\\"",
        "must be at most 100",
        "must have at most 2 items",
        "is not a field",
    ] {
        assert!(all.contains(said), "{said}: {all}");
    }
}

#[test]
fn every_keyword_has_a_sentence_without_the_value() {
    let secret = json!({"n": 41, "s": "hunter2", "a": ["hunter2", "hunter2"], "o": {"hunter2": 1}});
    let schemas = [
        json!({"properties": {"n": {"minimum": 50}}}),
        json!({"properties": {"n": {"exclusiveMinimum": 41.0}}}),
        json!({"properties": {"n": {"exclusiveMaximum": 1}}}),
        json!({"properties": {"n": {"multipleOf": 2}}}),
        json!({"properties": {"s": {"minLength": 100}}}),
        json!({"properties": {"s": {"maxLength": 1}}}),
        json!({"properties": {"s": {"not": {"type": "string"}}}}),
        json!({"properties": {"s": {"anyOf": [{"type": "null"}, {"maxLength": 1}]}}}),
        json!({"properties": {"s": {"oneOf": [{"type": "string"}, {"minLength": 1}]}}}),
        json!({"properties": {"s": {"oneOf": [{"type": "null"}, {"maxLength": 1}]}}}),
        json!({"properties": {"s": {"const": "x"}}}),
        json!({"properties": {"s": false}}),
        json!({"properties": {"a": {"uniqueItems": true}}}),
        json!({"properties": {"a": {"minItems": 5}}}),
        json!({"properties": {"a": {"contains": {"type": "null"}}}}),
        json!({"properties": {"a": {"prefixItems": [{}], "items": false}}}),
        json!({"properties": {"a": {"prefixItems": [{}], "unevaluatedItems": false}}}),
        json!({"properties": {"o": {"minProperties": 2}}}),
        json!({"properties": {"o": {"maxProperties": 0}}}),
        json!({"properties": {"o": {"propertyNames": {"maxLength": 2}}}}),
        json!({"properties": {"s": {"if": {"type": "string"}, "then": {"maxLength": 2}}}}),
        json!({"dependentRequired": {"n": ["m"]}}),
    ];
    for schema in schemas {
        let found = told(&schema, &secret);
        assert_eq!(found.len(), 1, "{schema}: {found:?}");
        let (path, description) = &found[0];
        assert!(!description.is_empty() && !path.is_empty(), "{schema}");
        assert!(!description.contains("hunter2"), "{schema}: {description}");
    }
}

#[test]
fn at_most_ten_are_told() {
    let schema =
        json!({"additionalProperties": false, "properties": {"a": {"items": {"type": "null"}}}});
    let many: Vec<Value> = (0..1000).map(Value::from).collect();
    assert_eq!(told(&schema, &json!({"a": many})).len(), MAX_VIOLATIONS);
    let wide: Map<String, Value> = (0..1000).map(|n| (format!("k{n}"), Value::Null)).collect();
    assert_eq!(told(&schema, &Value::Object(wide)).len(), MAX_VIOLATIONS);
}

#[test]
fn a_member_that_is_called_like_a_number_is_no_item() {
    let schema = json!({"properties": {"o": {"properties": {"0": {"type": "null"}}}}});
    let found = told(&schema, &json!({"o": {"0": 1}}));
    assert_eq!(found[0].0, ".o.0");
    let schema = json!({"properties": {"a/b~c": {"items": {"type": "null"}}}});
    let found = told(&schema, &json!({"a/b~c": [1]}));
    assert_eq!(found[0].0, "[\"a/b~c\"][0]");
}

#[test]
fn what_is_no_schema_is_refused_by_name() {
    for (schema, word) in [
        ("", "JSON"),
        ("{", "JSON"),
        ("true", "object"),
        ("[]", "object"),
        (r#"{"type":"strin"}"#, "/type"),
        (r#"{"type":5}"#, "/type"),
        (r#"{"properties":{"a":{"minLength":-1}}}"#, "minLength"),
        (r#"{"required":"a"}"#, "/required"),
        (r#"{"pattern":"("}"#, "pattern"),
        (r#"{"pattern":"(?=a)b"}"#, "pattern"),
        (r#"{"pattern":"((a{999}){999}){999}"}"#, "pattern"),
        (
            r#"{"$schema":"http://json-schema.org/draft-07/schema#"}"#,
            "$schema",
        ),
        (r#"{"properties":{"a":{"$schema":"x"}}}"#, "$schema"),
    ] {
        let why = refused(schema);
        assert!(why.contains(word), "{schema}: {why}");
        assert!(why.len() < 1000, "{schema}: {why}");
    }
    let large = format!("{{\"description\":\"{}\"}}", "x".repeat(MAX_SCHEMA_BYTES));
    assert!(refused(&large).contains("limit"), "{}", refused(&large));
}

#[test]
fn references_lead_nowhere_else() {
    for schema in [
        r#"{"$ref":"https://schemas.example/a.json"}"#,
        r#"{"$ref":"file:///etc/passwd"}"#,
        r#"{"$ref":"other.json#/a"}"#,
        r#"{"$ref":"//host/a"}"#,
        r##"{"$ref":"#name"}"##,
        r##"{"$ref":"#/nowhere"}"##,
        r##"{"$ref":"#/%24defs/a","$defs":{"a":{}}}"##,
        r#"{"items":{"$id":"http://a.example/"}}"#,
        r##"{"$dynamicRef":"#a"}"##,
        r#"{"properties":{"a":{"$anchor":"a"}}}"#,
    ] {
        let why = refused(schema);
        assert!(why.contains('$'), "{schema}: {why}");
    }
    // A member may be called like a keyword.
    let schema =
        json!({"properties": {"$ref": {"type": "null"}, "pattern": {}}, "const": {"$ref": "x"}});
    assert_eq!(told(&schema, &json!({"$ref": 1})).len(), 2);
}

#[test]
fn the_work_of_a_check_is_bounded_by_the_schema() {
    // In a ring, by itself or through others, in place or further down.
    for schema in [
        r##"{"$ref":"#"}"##,
        r##"{"allOf":[{"$ref":"#"}]}"##,
        r##"{"$ref":"#/$defs/a","$defs":{"a":{"not":{"$ref":"#/$defs/b"}},"b":{"$ref":"#/$defs/a"}}}"##,
        r##"{"properties":{"child":{"$ref":"#"}}}"##,
    ] {
        assert!(refused(schema).contains("refers back"), "{schema}");
    }
    // Twice as much with each step.
    let mut defs = Map::new();
    for n in 0..30 {
        let next = json!({"$ref": format!("#/$defs/d{}", n + 1)});
        defs.insert(format!("d{n}"), json!({"anyOf": [next, next]}));
    }
    defs.insert("d30".to_owned(), json!({"type": "null"}));
    let schema = json!({"$ref": "#/$defs/d0", "$defs": defs});
    assert!(refused(&schema.to_string()).contains("more than"));
    // As deep as a reader of JSON allows, and a long chain of references.
    let deep = format!("{}true{}", r#"{"not":"#.repeat(100), "}".repeat(100));
    assert!(refused(&deep).contains("inside"), "{}", refused(&deep));
    let mut defs = Map::new();
    for n in 0..1500 {
        defs.insert(
            format!("d{n}"),
            json!({"$ref": format!("#/$defs/d{}", n + 1)}),
        );
    }
    defs.insert("d1500".to_owned(), json!({}));
    let chain = json!({"$ref": "#/$defs/d0", "$defs": defs}).to_string();
    assert!(refused(&chain).contains("inside"), "{}", refused(&chain));
    let patterns: Map<String, Value> = (0..65)
        .map(|n| (format!("p{n}"), json!({"pattern": "a"})))
        .collect();
    let schema = json!({"properties": patterns}).to_string();
    assert!(refused(&schema).contains("regular expressions"));
}

#[test]
fn a_hostile_text_is_matched_in_linear_time() {
    let schema = compiled(&json!({"properties": {"s": {"pattern": "^(a+)+$"}}}));
    let payload = json!({"s": format!("{}!", "a".repeat(200_000))});
    assert_eq!(schema.misfits(&payload).len(), 1);
}

#[test]
fn a_deep_payload_is_checked_as_far_as_the_schema_goes() {
    let schema = compiled(&json!({"properties": {"a": {"items": {"items": {"type": "array"}}}}}));
    let deep = format!("{{\"a\":{}{}}}", "[".repeat(120), "]".repeat(120));
    let payload: Value = serde_json::from_str(&deep).expect("JSON");
    assert_eq!(schema.misfits(&payload), []);
}

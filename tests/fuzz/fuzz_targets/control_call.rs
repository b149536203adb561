//! Calls of the control API: a line as `X-Amz-Target`, then a body. It is refused with an error that clients
//! can read, or fits the service model.
#![no_main]

use libfuzzer_sys::fuzz_target;
use router::aws::{
    Arn, AwsError,
    json::{error_body, input, millis, operation},
    page::{Order, page},
};

fuzz_target!(|call: &[u8]| {
    let (target, body) = match call.iter().position(|byte| *byte == b'\n') {
        Some(end) => (&call[..end], &call[end + 1..]),
        None => (call, &[][..]),
    };
    let operation = match operation(Some(target)) {
        Ok(operation) => operation,
        Err(error) => return readable(&error),
    };
    let input = match input(body).and_then(|input| operation.check(&input).map(|()| input)) {
        Ok(input) => input,
        Err(error) => return readable(&error),
    };
    let _ = millis(&input["CreationTimeAfter"]);
    if let Some(Ok(arn)) = input["ResourceArn"].as_str().map(Arn::parse) {
        assert_eq!(arn.to_string(), input["ResourceArn"]);
    }
    let order = Order::of(&input, Order::Descending);
    let items: Vec<u32> = (0..100).collect();
    match page(operation.name(), &input, 10, order, items, |item| *item) {
        Ok(page) => assert!(page.next.is_none() || input["MaxResults"] != 100),
        Err(error) => readable(&error),
    }
});

fn readable(error: &AwsError) {
    assert!((400..600).contains(&error.status) && !error.message.is_empty());
    assert!(error.message.len() < 200_000, "{}", error.message.len());
    let body: serde_json::Value = serde_json::from_slice(&error_body(error)).expect("JSON");
    assert_eq!(body["__type"], error.name);
    assert_eq!(body["message"], error.message.as_str());
}

//! Fields that the gateway adds to an instance's answer.

use crate::{
    api::Api, config::Config, fleet::Instance, gateway::decide::Plan, http::ids::REQUEST_ID,
    routing::Choice,
};

/// Most fields that there can be.
const MOST: usize = 6;

/// A few fields, in order.
pub(super) struct Fields<'a> {
    fields: [(&'a str, &'a [u8]); MOST],
    count: usize,
}

impl<'a> Fields<'a> {
    /// What the request is called.
    pub(super) fn new(request_id: &'a [u8]) -> Self {
        let mut fields = Self { fields: [("", &[]); MOST], count: 0 };
        fields.push(REQUEST_ID, request_id);
        fields
    }

    /// Where it was routed, and why.
    pub(super) fn routed(
        &mut self,
        config: &Config,
        instance: &'a Instance,
        choice: &Choice,
        plan: &Plan<'a>,
    ) {
        if config.response_headers {
            self.push("x-atalho-instance", instance.name().as_bytes());
            self.push("x-atalho-reason", choice.reason.as_str().as_bytes());
        }
        if plan.api == Api::Invocations {
            self.push("x-amzn-invoked-production-variant", plan.variant.name.as_bytes());
        }
    }

    pub(super) fn push(&mut self, name: &'a str, value: &'a [u8]) {
        self.fields[self.count] = (name, value);
        self.count += 1;
    }

    pub(super) fn as_slice(&self) -> &[(&'a str, &'a [u8])] {
        &self.fields[..self.count]
    }
}

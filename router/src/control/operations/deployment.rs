//! Deployments: of an endpoint configuration, and how requests are to move to them.

use serde_json::Value;

use super::{Context, items, number, offered, text};
use crate::{
    aws::AwsError,
    control::resources::{
        Deployment, EndpointConfig, Model, Placed, Rollout, Step, VariantSpec, Wanted,
    },
};

/// What stands before a number of percent in the names of alarms that mean something here.
const ALARM: &str = "error-rate-";

/// The deployment of a configuration: nothing of it serves yet.
pub(super) fn of(context: &Context<'_>, config: &EndpointConfig) -> Result<Deployment, AwsError> {
    let place = |specs: &[VariantSpec]| -> Result<Vec<Placed>, AwsError> {
        specs.iter().map(|spec| placed(context, spec)).collect()
    };
    Ok(Deployment {
        config: config.name.clone(),
        variants: place(&config.variants)?,
        shadows: place(&config.shadows)?,
    })
}

fn placed(context: &Context<'_>, spec: &VariantSpec) -> Result<Placed, AwsError> {
    if spec.pools.is_empty() {
        return Err(AwsError::validation(format!(
            "Variant {:?} names no InstanceType: an endpoint configuration of the gateway's \
             configuration file serves that file's endpoint alone.",
            spec.name
        )));
    }
    let model = spec.model.as_deref().map(|name| context.find::<Model>(name)).transpose()?;
    Ok(Placed {
        spec: spec.clone(),
        model: model.map(|model| model.input.clone()),
        weight: Wanted { current: spec.weight, desired: spec.weight },
        count: Wanted { current: 0, desired: spec.instances },
        hosts: vec![],
    })
}

/// `DeploymentConfig`: the steps in which so many instances take over.
pub(super) fn rollout(input: &Value, instances: u32) -> Result<Rollout, AwsError> {
    let blue_green = &input["BlueGreenUpdatePolicy"];
    let rolling = &input["RollingUpdatePolicy"];
    let (policy, steps) = match (blue_green.is_object(), rolling.is_object()) {
        (true, _) => (blue_green, traffic(&blue_green["TrafficRoutingConfiguration"], instances)?),
        (_, true) => {
            let batch = percent(rolling, "MaximumBatchSize", instances, 5)?;
            (rolling, ladder(batch, wait(rolling)))
        }
        _ => (&Value::Null, Rollout::all_at_once().steps),
    };
    let rollout = Rollout {
        steps,
        termination_wait: number(policy, "TerminationWaitInSeconds").unwrap_or(0),
        timeout: number(policy, "MaximumExecutionTimeoutInSeconds"),
        max_error_percent: alarms(items(&input["AutoRollbackConfiguration"], "Alarms"))?,
    };
    let waits = rollout.steps.iter().map(|step| u64::from(step.wait)).sum::<u64>();
    let waits = waits + u64::from(rollout.termination_wait);
    match rollout.timeout {
        Some(timeout) if u64::from(timeout) <= waits => Err(AwsError::validation(format!(
            "MaximumExecutionTimeoutInSeconds is {timeout}: it must be more than all waiting times \
             together, which are {waits} seconds."
        ))),
        _ => Ok(rollout),
    }
}

fn traffic(config: &Value, instances: u32) -> Result<Vec<Step>, AwsError> {
    let wait = wait(config);
    Ok(match text(config, "Type") {
        "CANARY" => {
            let traffic = percent(config, "CanarySize", instances, 1)?;
            vec![Step { traffic, wait }, Step { traffic: 100, wait }]
        }
        "LINEAR" => ladder(percent(config, "LinearStepSize", instances, 10)?, wait),
        _ => vec![Step { traffic: 100, wait }],
    })
}

fn wait(config: &Value) -> u32 {
    number(config, "WaitIntervalInSeconds").unwrap_or(0)
}

/// Steps of one size up to all requests.
fn ladder(step: u32, wait: u32) -> Vec<Step> {
    let before = (1..).map(|n| n * step).take_while(|traffic| *traffic < 100);
    before.chain([100]).map(|traffic| Step { traffic, wait }).collect()
}

/// A size as a share of the instances: from `min` to 50 percent.
fn percent(of: &Value, member: &str, instances: u32, min: u32) -> Result<u32, AwsError> {
    let size = &of[member];
    let value = number(size, "Value").unwrap_or(0);
    let percent = match text(size, "Type") {
        "INSTANCE_COUNT" => value.saturating_mul(100).div_ceil(instances.max(1)),
        _ => value,
    };
    if (min..=50).contains(&percent) {
        return Ok(percent);
    }
    Err(AwsError::validation(format!(
        "{member} is {percent} percent of the {instances} instances: it must be {min} to 50 percent."
    )))
}

/// The error rate at which a deployment is taken back, in percent.
fn alarms(alarms: &[Value]) -> Result<Option<f64>, AwsError> {
    let mut least: Option<f64> = None;
    for alarm in alarms {
        let name = text(alarm, "AlarmName");
        let percent = name.strip_prefix(ALARM).and_then(|percent| percent.parse::<f64>().ok());
        let Some(percent) = percent.filter(|percent| *percent > 0.0 && *percent <= 100.0) else {
            return offered::refuse(
                &format!("The CloudWatch alarm {name:?}"),
                "name a share of failed requests in percent, as in `error-rate-5`",
            );
        };
        least = Some(least.map_or(percent, |least| least.min(percent)));
    }
    Ok(least)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn blue_green(traffic: Value) -> Value {
        json!({ "BlueGreenUpdatePolicy": { "TrafficRoutingConfiguration": traffic } })
    }

    fn shares(rollout: &Rollout) -> Vec<(u32, u32)> {
        rollout.steps.iter().map(|step| (step.traffic, step.wait)).collect()
    }

    #[test]
    fn without_a_policy_all_requests_move_at_once() {
        let rollout = rollout(&Value::Null, 3).unwrap();
        assert_eq!(rollout, Rollout::all_at_once());
        assert_eq!(shares(&rollout), [(100, 0)]);
    }

    #[test]
    fn canaries_and_steps_are_shares_of_the_instances() {
        let size = |kind: &str, value: u32| json!({ "Type": kind, "Value": value });
        let canary = |size: Value| {
            blue_green(json!({ "Type": "CANARY", "WaitIntervalInSeconds": 60, "CanarySize": size }))
        };
        let linear = |size: Value| {
            blue_green(
                json!({ "Type": "LINEAR", "WaitIntervalInSeconds": 5, "LinearStepSize": size }),
            )
        };
        let steps = |input: Value, instances: u32| {
            rollout(&input, instances).map(|it| shares(&it)).map_err(|error| error.message)
        };
        assert_eq!(steps(canary(size("INSTANCE_COUNT", 1)), 4).unwrap(), [(25, 60), (100, 60)]);
        assert_eq!(steps(canary(size("CAPACITY_PERCENT", 1)), 4).unwrap(), [(1, 60), (100, 60)]);
        assert_eq!(
            steps(linear(size("INSTANCE_COUNT", 1)), 3).unwrap(),
            [(34, 5), (68, 5), (100, 5)]
        );
        assert_eq!(steps(linear(size("CAPACITY_PERCENT", 50)), 3).unwrap(), [(50, 5), (100, 5)]);
        let rolling = json!({ "RollingUpdatePolicy": {
            "MaximumBatchSize": size("CAPACITY_PERCENT", 40), "WaitIntervalInSeconds": 1
        } });
        assert_eq!(steps(rolling, 3).unwrap(), [(40, 1), (80, 1), (100, 1)]);
        for (input, instances) in [
            (canary(size("INSTANCE_COUNT", 1)), 1),
            (canary(size("INSTANCE_COUNT", 3)), 4),
            (linear(size("INSTANCE_COUNT", 1)), 20),
            (linear(size("CAPACITY_PERCENT", 51)), 3),
        ] {
            let message = steps(input, instances).unwrap_err();
            assert!(message.contains("to 50 percent"), "{message}");
        }
    }

    #[test]
    fn a_time_limit_leaves_time_for_all_waits() {
        let mut input = blue_green(json!({
            "Type": "CANARY",
            "WaitIntervalInSeconds": 300,
            "CanarySize": { "Type": "CAPACITY_PERCENT", "Value": 10 },
        }));
        let policy = &mut input["BlueGreenUpdatePolicy"];
        policy["TerminationWaitInSeconds"] = json!(100);
        policy["MaximumExecutionTimeoutInSeconds"] = json!(700);
        let message = rollout(&input, 4).unwrap_err().message;
        assert!(message.contains("which are 700 seconds"), "{message}");
        input["BlueGreenUpdatePolicy"]["MaximumExecutionTimeoutInSeconds"] = json!(701);
        let rollout = rollout(&input, 4).unwrap();
        assert_eq!((rollout.timeout, rollout.termination_wait), (Some(701), 100));
    }

    #[test]
    fn an_alarm_names_an_error_rate() {
        let of = |names: &[&str]| {
            let alarms: Vec<Value> =
                names.iter().map(|name| json!({ "AlarmName": name })).collect();
            rollout(&json!({ "AutoRollbackConfiguration": { "Alarms": alarms } }), 1)
        };
        assert_eq!(of(&[]).unwrap().max_error_percent, None);
        assert_eq!(of(&["error-rate-5"]).unwrap().max_error_percent, Some(5.0));
        assert_eq!(of(&["error-rate-5", "error-rate-0.5"]).unwrap().max_error_percent, Some(0.5));
        for name in
            ["HighLatency", "error-rate-", "error-rate-0", "error-rate-101", "error-rate-NaN"]
        {
            let message = of(&["error-rate-5", name]).unwrap_err().message;
            assert!(message.contains(name) && message.contains("`error-rate-5`"), "{message}");
        }
    }
}

//! Runs tests/bindings/program.hir, which tests/bindings/run.sh compiles. HUSK_TEST_PROGRAM is the
//! artifact.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use husk::*;

fn artifact() -> String {
    std::env::var("HUSK_TEST_PROGRAM").expect("run tests/bindings/run.sh")
}

/// test::scale, which multiplies a tensor by a number.
fn scale(args: &mut [OpArg<'_>]) -> Result<(), Error> {
    match args {
        [OpArg::Tensor(x), OpArg::Float(factor), OpArg::Tensor(y)] => {
            for (to, from) in y.as_mut_slice::<f32>()?.iter_mut().zip(x.as_slice::<f32>()?) {
                *to = from * *factor as f32;
            }
            Ok(())
        }
        _ => Err(Error::new(Status::InvalidArgument, "test::scale takes x, factor and y")),
    }
}

fn engine() -> Engine {
    let engine = Engine::builder().build().unwrap();
    engine.add_op("test::scale", "x factor y:w", scale).unwrap();
    engine
}

fn program() -> Program {
    engine().open(artifact()).unwrap()
}

fn failure<T>(result: Result<T, Error>) -> Error {
    match result {
        Ok(_) => panic!("the call succeeded"),
        Err(error) => error,
    }
}

#[test]
fn a_program_describes_itself() {
    let program = program();
    assert_eq!(program.functions(), ["linear", "scale", "accumulate"]);
    let linear = program.function("linear").unwrap();
    assert!(program.target(linear).starts_with("host "), "{}", program.target(linear));
    let inputs = program.inputs(linear).unwrap();
    assert_eq!(inputs.len(), 1);
    assert_eq!((inputs[0].name.as_str(), inputs[0].kind), ("x", ValueKind::Tensor));
    assert_eq!((inputs[0].dtype, inputs[0].rank), (Some(DType::F32), 2));
    assert_eq!(inputs[0].ranges, [(1, 8), (3, 3)]);
    let outputs = program.outputs(linear).unwrap();
    assert_eq!(
        outputs.iter().map(|one| one.kind).collect::<Vec<_>>(),
        [ValueKind::Tensor, ValueKind::Int]
    );
    assert_eq!((outputs[0].rank, outputs[0].ranges.len()), (2, 0));
    let states = program.states().unwrap();
    assert_eq!((states[0].name.as_str(), states[0].sizes.as_slice()), ("total", &[4, 2][..]));
    let constants = program.constants().unwrap();
    assert_eq!(constants.iter().map(|one| one.bytes).collect::<Vec<_>>(), [24, 8]);
    assert_eq!((program.pytree(), program.metadata().len()), ("", 0));
    assert!(!husk::version().is_empty() && !program.engine().device_name().unwrap().is_empty());
}

#[test]
fn runs_have_shapes_of_their_own() {
    let mut session = program().session().unwrap();
    for rows in [1usize, 8, 2] {
        let x: Vec<f32> = (0..rows * 3).map(|i| i as f32).collect();
        let outputs = session.run(0, &[Tensor::new(&x, &[rows, 3]).unwrap().into()]).unwrap();
        let y = outputs.tensor(0).unwrap();
        assert_eq!((y.dtype(), y.sizes()), (DType::F32, &[rows as i64, 2][..]));
        let expected: Vec<f32> =
            x.chunks(3).flat_map(|r| [r[0] + 3.0 * r[2] + 0.5, 2.0 * r[1] + r[2] - 0.5]).collect();
        assert_eq!(y.as_slice::<f32>().unwrap(), expected);
        assert_eq!(y.to_vec::<f32>().unwrap(), expected);
        assert_eq!((outputs.int(1).unwrap(), outputs.len()), (rows as i64, 2));
        assert_eq!(failure(outputs.tensor(1)).text(), "output 1 is no tensor");
        assert_eq!(failure(outputs.get(2)).text(), "output 2 of 2");
        assert_eq!(failure(y.as_slice::<i32>()).text(), "a tensor of f32 is read as i32");
    }
    assert_eq!(session.stats(0).unwrap().runs, 3);
}

#[test]
fn read_only_memory_is_not_written() {
    let path = std::env::var("HUSK_TEST_WRITTEN").unwrap();
    let program = Engine::builder().build().unwrap().open(path).unwrap();
    let inputs = program.inputs(0).unwrap();
    assert_eq!((inputs[0].is_written, inputs[1].is_written), (true, false));
    let mut session = program.session().unwrap();
    let (mut x, y) = ([1.0f32, 2.0], [3.0f32, 4.0]);
    let read = Tensor::new(&y, &[2]).unwrap();
    let error = failure(session.run(0, &[read.into(), read.into()]));
    assert_eq!(error.status(), Status::InvalidInput);
    assert!(error.text().contains("'x' is read-only, and the program writes to it"), "{error}");
    assert_eq!(y, [3.0, 4.0]);
    let written = Tensor::from_mut(&mut x, &[2]).unwrap();
    assert_eq!(session.run(0, &[written.into(), read.into()]).unwrap().int(0).unwrap(), 2);
    assert_eq!(x, y);
}

#[test]
fn an_operator_of_the_application_is_called() {
    let mut session = program().session().unwrap();
    let x = [1.0f32, -2.0, 3.0];
    let inputs = [Tensor::new(&x, &[3]).unwrap().into(), Value::Float(2.5)];
    let outputs = session.run(1, &inputs).unwrap();
    assert_eq!(outputs.tensor(0).unwrap().as_slice::<f32>().unwrap(), [2.5, -5.0, 7.5]);

    let mut y = [0.0f32; 3];
    session.run_into(1, &inputs, &mut [TensorMut::new(&mut y, &[3]).unwrap()]).unwrap();
    assert_eq!(y, [2.5, -5.0, 7.5]);
}

#[test]
fn an_operator_may_fail_or_panic() {
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = calls.clone();
    let engine = Engine::builder().build().unwrap();
    let fails = move |args: &mut [OpArg<'_>]| {
        if counted.fetch_add(1, Ordering::Relaxed) == 1 {
            panic!("a panic of the test");
        }
        if let OpArg::Tensor(x) = &mut args[0] {
            assert_eq!(failure(x.as_mut_slice::<f32>()).status(), Status::InvalidArgument);
        }
        Err(Error::new(Status::Limit, "é".repeat(200)))
    };
    engine.add_op("test::scale", "x factor y:w", fails).unwrap();
    let mut session = engine.open(artifact()).unwrap().session().unwrap();
    let x = [1.0f32];
    let inputs = [Tensor::new(&x, &[1]).unwrap().into(), 1.0.into()];
    let first = failure(session.run(1, &inputs));
    assert_eq!(first.status(), Status::Limit);
    assert!(first.text().ends_with('é'), "{}", first);
    let second = failure(session.run(1, &inputs));
    assert_eq!((second.status(), second.step()), (Status::Kernel, Some(0)));
    assert!(second.text().contains("panicked"), "{}", second);
    assert_eq!(calls.load(Ordering::Relaxed), 2);
}

#[test]
fn state_lives_in_a_session() {
    let program = program();
    let (mut one, mut two) = (program.session().unwrap(), program.session().unwrap());
    let rows = [1i64, 3, 1];
    let x = [2.0f32, 5.0];
    let inputs =
        [Tensor::new(&rows, &[3]).unwrap().into(), Tensor::new(&x, &[1, 2]).unwrap().into()];
    let accumulate = program.function("accumulate").unwrap();
    assert_eq!(one.run(accumulate, &inputs).unwrap().int(0).unwrap(), 3);
    let mut total = [9.0f32; 8];
    one.get_state("total", &mut total).unwrap();
    assert_eq!(total, [0.0, 0.0, 4.0, 10.0, 0.0, 0.0, 2.0, 5.0]);
    two.get_state("total", &mut total).unwrap();
    assert_eq!(total, [0.0; 8]);
    two.copy_state("total", &mut one).unwrap();
    two.get_state("total", &mut total).unwrap();
    assert_eq!(total[2..4], [4.0, 10.0]);
    two.set_state("total", &[1.0f32; 8]).unwrap();
    two.run(accumulate, &inputs).unwrap();
    two.get_state("total", &mut total).unwrap();
    assert_eq!(total, [1.0, 1.0, 5.0, 11.0, 1.0, 1.0, 3.0, 6.0]);
    two.reset_state("total").unwrap();
    two.get_state("total", &mut total).unwrap();
    assert_eq!(total, [0.0; 8]);

    assert_eq!(failure(one.reset_state("other")).status(), Status::NotFound);
    let wrong = failure(one.set_state("total", &[1.0f64; 4]));
    assert_eq!(wrong.text(), "total is f32 [4, 2], 32 bytes; 4 elements of f64 were given");
}

#[test]
fn constants_are_replaced() {
    let program = program();
    let mut session = program.session().unwrap();
    program.update_constant("bias", &[10.0f32, 20.0]).unwrap();
    let x = [0.0f32; 3];
    let outputs = session.run(0, &[Tensor::new(&x, &[1, 3]).unwrap().into()]).unwrap();
    assert_eq!(outputs.tensor(0).unwrap().as_slice::<f32>().unwrap(), [10.0, 20.0]);
    assert_eq!(failure(program.update_constant("none", &[0.0f32])).status(), Status::NotFound);
    assert!(program.update_constant("bias", &[0.0f32; 3]).is_err());
    program.update_constant_part("bias", 1, &[30.0f32]).unwrap();
    let outputs = session.run(0, &[Tensor::new(&x, &[1, 3]).unwrap().into()]).unwrap();
    assert_eq!(outputs.tensor(0).unwrap().as_slice::<f32>().unwrap(), [10.0, 30.0]);
    let wrong = failure(program.update_constant_part("bias", 1, &[0.0f32; 2]));
    assert!(wrong.text().contains("no part of constant 'bias', which has 8"), "{}", wrong.text());
    assert!(program.update_constant_part("bias", u64::MAX, &[0.0f32]).is_err());
    assert!(program.update_constant_part("bias", 0, &[0.0f64]).is_err());
}

#[test]
fn wrong_inputs_are_refused_and_the_session_stays_usable() {
    let program = program();
    let mut session = program.session().unwrap();
    let x = [1.0f32; 27];
    let ints = [1i64; 3];
    let good = [Tensor::new(&x[..3], &[1, 3]).unwrap().into()];
    let wrong: [(Vec<Value<'_>>, &str); 5] = [
        (vec![], "input"),
        (vec![Value::Int(3)], "x"),
        (vec![Tensor::new(&ints, &[1, 3]).unwrap().into()], "x"),
        (vec![Tensor::new(&x, &[9, 3]).unwrap().into()], "x"),
        (vec![Tensor::new(&x[..8], &[2, 4]).unwrap().into()], "x"),
    ];
    for (inputs, named) in wrong {
        let error = failure(session.run(0, &inputs));
        assert!(matches!(error.status(), Status::InvalidInput | Status::InvalidArgument));
        assert!(error.text().contains(named), "{}", error);
        session.run(0, &good).unwrap();
    }
    assert!(session.run(7, &good).is_err());
    assert_eq!(failure(program.function("other")).status(), Status::NotFound);
    session.set_range(0, 0, 0, 1..=2).unwrap();
    assert!(session.run(0, &[Tensor::new(&x[..9], &[3, 3]).unwrap().into()]).is_err());
    session.run(0, &good).unwrap();
    session.resize(0, &good).unwrap();

    assert!(Tensor::new(&x, &[2, 2]).is_err());
    assert!(Tensor::new(&x, &[usize::MAX]).is_err());
    assert!(Tensor::new(&x[..0], &[usize::MAX >> 1, usize::MAX >> 1, 0]).is_err());
    assert!(Tensor::new(&x[..1], &[1; 17]).is_err());
    assert!(Tensor::from_bytes(&[0; 3], DType::BF16, &[2]).is_err());
}

#[test]
fn bad_files_are_refused() {
    let engine = engine();
    assert_eq!(failure(engine.open("/nowhere.husk")).status(), Status::Io);
    assert_eq!(failure(engine.open("a\0b")).status(), Status::InvalidArgument);
    let bytes = std::fs::read(artifact()).unwrap();
    let error = failure(engine.load(&bytes[..bytes.len() / 2]));
    assert_eq!(error.status(), Status::InvalidFile, "{}", error);
    assert_eq!(engine.load(&bytes).unwrap().functions().len(), 3);
    let empty = Engine::builder().build().unwrap();
    let error = failure(empty.load(&bytes));
    assert!(error.text().contains("test::scale"), "{}", error);
    assert!(engine.add_op("test::scale", "x factor x:w:w", scale).is_err());
}

#[test]
fn sessions_run_on_threads() {
    let program = program();
    let mut threads = Vec::new();
    for number in 0..2 {
        let mut session = program.session().unwrap();
        threads.push(std::thread::spawn(move || {
            for i in 0..1000 {
                let x = [(number * 1000 + i) as f32; 3];
                let inputs = [Tensor::new(&x, &[1, 3]).unwrap().into()];
                let outputs = session.run(0, &inputs).unwrap();
                let y = outputs.tensor(0).unwrap().as_slice::<f32>().unwrap().to_vec();
                assert_eq!(y, [4.0 * x[0] + 0.5, 3.0 * x[0] - 0.5]);
            }
        }));
    }
    drop(program);
    for thread in threads {
        thread.join().unwrap();
    }
}

#[test]
fn callbacks_are_called() {
    let stop = Arc::new(AtomicBool::new(false));
    let seen = Arc::new(Mutex::new(Vec::new()));
    let (asked, told) = (stop.clone(), seen.clone());
    let engine = Engine::builder()
        .threads(2)
        .verify_content()
        .cancel(move || asked.load(Ordering::Relaxed))
        .log(move |warning, text| told.lock().unwrap().push((warning, text.to_string())))
        .build()
        .unwrap();
    engine.add_op("test::scale", "x factor y:w", scale).unwrap();
    let mut session = engine.open(artifact()).unwrap().session().unwrap();
    let x = [0.0f32; 3];
    let inputs = [Tensor::new(&x, &[1, 3]).unwrap().into()];
    session.run(0, &inputs).unwrap();
    stop.store(true, Ordering::Relaxed);
    assert_eq!(failure(session.run(0, &inputs)).status(), Status::Cancelled);
    stop.store(false, Ordering::Relaxed);
    session.run(0, &inputs).unwrap();
}

#[test]
fn a_machine_without_a_gpu_says_so() {
    match Engine::builder().cuda(0).build() {
        Ok(engine) => assert!(!engine.device_name().unwrap().is_empty()),
        Err(error) => assert!(error.text().len() > 10, "{}", error),
    }
}

#[test]
fn a_port_has_a_name() {
    let engine = Engine::builder().port("host", 0).build().unwrap();
    assert!(!engine.device_name().unwrap().is_empty());
    let error = Engine::builder().port("tpu", 0).build().err().unwrap();
    assert_eq!(error.status(), Status::InvalidArgument);
    assert!(error.text().contains("no port \"tpu\""), "{}", error);
}

#[test]
fn types_are_sent_between_threads_as_the_contract_says() {
    fn sent<T: Send>() {}
    fn shared<T: Send + Sync>() {}
    shared::<Engine>();
    shared::<Program>();
    sent::<Session>();
}

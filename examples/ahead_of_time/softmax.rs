// Softmax from Rust (COUNT and ARENA_BYTES are those of the header):
//   hlo-run compile ../softmax.hlo -o libsoftmax.a --header=softmax.h
//   rustc -O softmax.rs -L. -lsoftmax && ./softmax
use std::os::raw::{c_int, c_void};

const COUNT: usize = 128 * 1024;
const ARENA_BYTES: usize = 1 << 20;

extern "C" {
    fn softmax(inputs: *const *const c_void, outputs: *const *mut c_void, arena: *mut c_void) -> c_int;
}

#[repr(align(64))]
struct Arena([u8; ARENA_BYTES]);

fn main() {
    let x: Vec<f32> = (0..COUNT).map(|k| (k % 7) as f32).collect();
    let mut result = vec![0f32; COUNT];
    let mut arena = Box::new(Arena([0; ARENA_BYTES]));
    let inputs = [x.as_ptr() as *const c_void];
    let outputs = [result.as_mut_ptr() as *mut c_void];
    let place = arena.0.as_mut_ptr() as *mut c_void;
    let status = unsafe { softmax(inputs.as_ptr(), outputs.as_ptr(), place) };
    assert_eq!(status, 0);
    let sum: f64 = result.iter().map(|&r| f64::from(r)).sum();
    println!("first {:.6}, sum of all rows {:.3}", result[0], sum);
}

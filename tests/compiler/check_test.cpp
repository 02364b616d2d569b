#include <gtest/gtest.h>

#include "program.h"

namespace husk::test {
namespace {

struct BadText {
  const char* text;
  const char* error;  // without its place
};

std::string text_of(const std::string& error) {
  size_t at = error.find(": ");
  return at == std::string::npos ? error : error.substr(at + 2);
}

const char* const kHead =
    "target cpu host \"avx2\" target gpu cuda \"sm_90a\" constant c f32 [] bytes \"00000000\" "
    "image ih cpu elf \"h\" image ig gpu cubin \"g\" ";
const char* const kTail = " function f { variant cpu { return () } }";

const BadText kFile[] = {
    {"world 2 rank 2 set \"0\"",
     "there is no rank 2 of 2 ranks: rank is less than world, which is at most 65536"},
    {"world 2 rank -1 set \"0\"",
     "there is no rank -1 of 2 ranks: rank is less than world, which is at most 65536"},
    {"world 65537 rank 0 set \"0\"",
     "there is no rank 0 of 65537 ranks: rank is less than world, which is at most 65536"},
    {"world 2 rank 1 set \"0\"", "the set of a world is 64 hexadecimal digits"},
    {"world 2 rank 1 set \"xaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\"",
     "the set of a world is 64 hexadecimal digits"},
    {"target cpu host \"b\"", "a second target 'cpu': the first is in line 1"},
    {"constant c f32 [] bytes \"00000000\"", "a second constant 'c': the first is in line 1"},
    {"state c f32 [] fill 0", "'c' is a constant already, in line 1"},
    {"target t host \"\"", "target 't' has no architecture"},
    {"constant d f32 [-1] bytes \"\"", "'d' has a negative size"},
    {"constant d f32 [4294967296, 4294967296] bytes \"\"", "'d' has more than 2^63 bytes"},
    {"constant d f32 [1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1] bytes \"\"",
     "'d' has 17 dimensions, 16 are the most"},
    {"constant d u8 [2] bytes \"00\"", "constant 'd' has 2 bytes: 4 digits, not 2"},
    {"constant d u8 [1] bytes \"0g\"", "the bytes of 'd' are not all hexadecimal digits"},
    {"constant null u8 [1] bytes \"00\"", "'null' is a word of the text form: choose another name"},
    {"state s f32 [2] constant c", "state 's' differs in dtype or size from constant 'c'"},
    {"state s i32 [] constant c", "state 's' differs in dtype or size from constant 'c'"},
    {"state s f32 [] constant d", "there is no constant 'd'"},
    {"state s f32 [] constant d constant d f32 [] bytes \"00000000\"",
     "constant 'd' is defined only later, in line 1"},
    {"image i tpu elf \"a\"", "there is no target 'tpu'"},
    {"image i cpu ptx \"a\"", "target 'cpu' is for the port host, which does not take ptx images"},
    {"image i gpu elf \"a\"", "target 'gpu' is for the port cuda, which does not take elf images"},
    {"kernel k nope \"s\" ()", "there is no image 'nope'"},
    {"kernel k ih \"\" ()", "kernel 'k' has no symbol"},
    {"kernel k ih \"s\" (c64)", "kernel 'k': a parameter cannot have type c64"},
    {"kernel k ig \"s\" () block 0 1 1", "kernel 'k': each side of the block must be 1..1024"},
    {"kernel k ig \"s\" () block 1024 2 1",
     "kernel 'k': 2048 threads in a block, 1024 are the most"},
    {"kernel k ig \"s\" () shared -1", "kernel 'k': shared must be 0..2^32-1 bytes"},
    {"kernel k ig \"s\" () cluster 17", "kernel 'k': cluster must be 1..16"},
    {"kernel k ih \"s\" () block 2 1 1",
     "kernel 'k' is for the host, which has no block, shared or cluster"},
    {"function g { variant cpu { return () } variant cpu { return () } }",
     "function 'g' has a second variant for target 'cpu'"},
    {"function g { variant tpu { return () } }", "there is no target 'tpu'"},
    {"function g { }", "function 'g' has no variant"},
    {"function f { variant cpu { return () } }", "a second function 'f': the first is in line 1"},
    {"function g { input x int input x int variant cpu { return () } }",
     "'x' is an input or output already, in line 1"},
    {"function g { input x int 5..4 variant cpu { return () } }", "the range 5..4 is empty"},
    {"function g { input x tensor f32 [-1..4] variant cpu { return () } }",
     "a size cannot be negative"},
    {"function g { output x tensor f32 rank 17 variant cpu { return () } }",
     "'x': the rank must be 0..16"},
    {"function g { input both int variant cpu { return () } }",
     "'both' is a word of the text form: choose another name"},
};

TEST(Check, RefusesWrongFiles) {
  for (const BadText& c : kFile)
    EXPECT_EQ(text_of(error_of(std::string("hir 1 ") + kHead + c.text + kTail)), c.error) << c.text;
  EXPECT_EQ(error_of("hir 2"), "1:5: this compiler reads hir 1, not hir 2");
  EXPECT_EQ(error_of("hir 1"), "1:5: the program has no function");
}

const BadText kBody[] = {
    {"let a = b", "'b' is not defined before this line"},
    {"let a = x", "'x' is not a number"},
    {"let a = weight", "'weight' is not a number"},
    {"let n = 1", "'n' is defined already, in line 8"},
    {"let a = 1 let a = 2", "'a' is defined already, in line 12"},
    {"let tensor = 1", "'tensor' is a word of the text form: choose another name"},
    {"let a = sum(1, 2)", "there is no op 'sum'"},
    {"let a = const(1)", "there is no op 'const'"},
    {"let a = input(n)", "there is no op 'input': write the input's name alone"},
    {"let a = check(n)", "'check' is a statement, it has no value"},
    {"let a = add(1)", "add takes 2 operands, not 1"},
    {"let a = add(n, t)", "add takes an int here: write trunc, floor or ceil"},
    {"let a = fadd(t, n)", "fadd takes a float here: write float(...)"},
    {"let a = select(t, 1, 2)", "select takes an int here: write trunc, floor or ceil"},
    {"let a = size(n, 0)", "this must be the name of a tensor input"},
    {"let a = size(y, 0)", "this must be the name of a tensor input"},
    {"let a = size(x, 2)", "'x' has 2 dimensions, there is no dimension 2"},
    {"let a = size(x, n)", "the dimension must be a number"},
    {"check(t)", "check takes an int here: write trunc, floor or ceil"},
    {"check_eq(n)", "check_eq takes 2 operands, not 1"},
    {"check_stride(x, 0, 8) \"text\"", "check_stride has a text of its own: write none"},
    {"buffer b bytes t",
     "the size of a buffer is an int, this is a float: write trunc, floor or ceil"},
    {"buffer b bytes 8 align 24", "'b': align must be a power of two, at most 256"},
    {"buffer x of input bytes 8 align 8192", "'x': align must be a power of two, at most 4096"},
    {"buffer weight bytes 8", "'weight' is defined already, in line 3"},
    {"buffer n of input bytes 8", "'n' is not a tensor input"},
    {"buffer y of input bytes 8", "'y' is not a tensor input"},
    {"buffer x of input bytes 8 buffer x of input bytes 8", "'x' has a buffer already"},
    {"fill f32 (write x, 0.0)", "'x' has no buffer yet: declare it with 'buffer x of input'"},
    {"fill f32 (write y, 0.0)", "'y' has no buffer yet: declare it with 'buffer y of output'"},
};

TEST(Check, RefusesWrongPrologues) {
  for (const BadText& c : kBody) EXPECT_EQ(text_of(error_of(program(c.text))), c.error) << c.text;
}

const BadText kSteps[] = {
    {"fill f32 (write nope, 0.0)", "there is no buffer 'nope'"},
    {"fill f32 (write n, 0.0)", "there is no buffer 'n'"},
    {"fill f32 (both y, 0.0)", "the target of fill is a view with the access 'write'"},
    {"fill f32 (write y, 0)", "fill f32 takes a float: write 0.0 or float(...)"},
    {"fill i32 (write y, 0.0)", "fill i32 takes an int"},
    {"fill c64 (write y, 0.0)",
     "fill writes ints and f16 to f64, not c64: fill the bytes as an int type"},
    {"fill f32 (write weight, 0.0)", "constant 'weight' is never written: make it a state"},
    {"fill f32 (write y[t, 4], 0.0)",
     "an offset or extent is an int, this is a float: write trunc, floor or ceil"},
    {"copy (read y, read x)", "the first argument of copy is a view with the access 'write'"},
    {"copy (write y, write x)", "the second argument of copy is a view with the access 'read'"},
    {"read f32 (write y)", "the argument of read is a view with the access 'read'"},
    {"read c64 (read x)", "read gives an int or a float, not c64"},
    {"launch k grid (1, 1, 1) ()", "there is no kernel 'k' before this line"},
    {"extern \"\" ()", "the op has no name"},
    {"extern \"a\" (read x)", "an op takes tensors, not views: write 'tensor' after the access"},
    {"extern \"a\" (null)", "an op takes no null: write none"},
    {"extern \"a\" (asserts)", "an op has no asserts: it fails by its status"},
    {"extern \"a\" ([1, t])",
     "an element of a list is an int, this is a float: write trunc, floor or ceil"},
    {"extern \"a\" (read tensor x f32 [1, 2] [1])", "the tensor has 2 sizes and 1 strides"},
    {"extern \"a\" (write tensor weight f32 [1] [1])",
     "constant 'weight' is never written: make it a state"},
    {"extern \"a\" (read tensor x f32 [t] [1])",
     "a size is an int, this is a float: write trunc, floor or ceil"},
};

TEST(Check, RefusesWrongSteps) {
  for (const BadText& c : kSteps)
    EXPECT_EQ(text_of(error_of(program("", c.text))), c.error) << c.text;
}

std::string launch(const char* arguments) {
  return std::string(
             "hir 1 target cpu host \"a\" target gpu cuda \"b\" image ih cpu elf \"h\" "
             "image ig gpu cubin \"g\"\n"
             "kernel k ih \"s\" (ptr, i32, f32) kernel g ig \"s\" ()\n"
             "function f { input n int input t float variant cpu { buffer b bytes 4\n") +
         arguments + " return () } }";
}

TEST(Check, RefusesWrongLaunches) {
  const BadText cases[] = {
      {"launch g grid (1, 1, 1) ()", "4:8: kernel 'g' is for target 'gpu', this variant for 'cpu'"},
      {"launch k grid (1, t, 1) (null, 1, 1.0)",
       "4:19: a side of the grid is an int, this is a float: write trunc, floor or ceil"},
      {"launch k grid (1, 1, 1) (null, 1)", "4:1: kernel 'k' takes 3 arguments, not 2"},
      {"launch k grid (1, 1, 1) (n, 1, 1.0)",
       "4:26: parameter 0 of kernel 'k' is a pointer: give a view, null or asserts"},
      {"launch k grid (1, 1, 1) (asserts, 1, 1.0)",
       "4:26: the program has no asserts: write what they say, 'assert \"...\"'"},
      {"launch k grid (1, 1, 1) (write b, t, 1.0)",
       "4:35: parameter 1 of kernel 'k' is i32: give an int, this is a float"},
      {"launch k grid (1, 1, 1) (write b, n, n)",
       "4:38: parameter 2 of kernel 'k' is f32: give a float, this is an int"},
      {"launch k grid (1, 1, 1) (write b, null, t)",
       "4:35: parameter 1 of kernel 'k' is i32: give a number"},
  };
  for (const BadText& c : cases) EXPECT_EQ(error_of(launch(c.text)), c.error);
}

std::string on_host(const char* statements, const char* target = "gpu") {
  return std::string(
             "hir 1 target cpu host \"a\" target gpu cuda \"b\" image ig gpu cubin \"g\"\n"
             "kernel g ig \"s\" (ptr)\n"
             "function f { input x tensor f32 [4] output y tensor f32 rank 1 variant ") +
         target + " { buffer x of input bytes 16 buffer y of output bytes 16\n" +
         "buffer d bytes 16 buffer h bytes 16 " + (*target == 'g' ? "on host" : "") + "\n" +
         statements + " return (tensor y f32 [4] [1]) } }";
}

TEST(Check, RefusesWrongPlaces) {
  const BadText cases[] = {
      {"buffer z bytes 4 on", "5:21: expected 'host', found 'return'"},
      {"buffer z bytes 4 on host align 8",
       "5:26: expected a statement (let, check, buffer, launch, extern, copy, fill, read, when, "
       "loop, return), found 'align'"},
      {"launch g grid (1, 1, 1) (read h)",
       "5:26: 'h' lies on the host, a kernel takes memory of the device: copy it"},
      {"fill f32 (write h, 0.0)",
       "5:11: 'h' lies on the host, fill takes memory of the device: copy it"},
      {"extern \"a\" (read tensor d f32 [4] [1], write tensor h f32 [4] [1])",
       "5:40: 'h' lies on the host, 'd' does not: copy one of them"},
      {"extern \"a\" (tensors [none, read tensor h f32 [4] [1]], read tensor x f32 [4] [1])",
       "5:56: 'x' lies on the device, 'h' does not: copy one of them"},
  };
  for (const BadText& c : cases) EXPECT_EQ(error_of(on_host(c.text)), c.error) << c.text;
  const std::string outer =
      "hir 1 target gpu cuda \"b\"\nfunction f { input x tensor f32 [4] variant gpu {\n"
      "buffer x of input bytes 16 on host fill f32 (write x, 0.0) return () } }";
  EXPECT_EQ(error_of(outer),
            "3:46: 'x' lies on the host, fill takes memory of the device: copy it");
  EXPECT_EQ(error_of(on_host("buffer z bytes 4 on host", "cpu")),
            "5:8: 'z' lies on the host, as all memory of this target: leave 'on host' out");
  EXPECT_EQ(error_of(on_host("copy (write h, read x) extern \"a\" (both tensor h f32 [4] [1]) "
                             "copy (write y, read h)")),
            "1:66: cannot open /nowhere/g: No such file or directory");
}

std::string returns(const char* results) {
  return std::string(
             "hir 1 target cpu host \"a\"\nfunction f { input n int input t float output a tensor "
             "f32 rank 1\n"
             "output b int output c float output d none output e bool variant cpu {\n"
             "buffer a of output bytes 4 buffer z bytes 4 return (") +
         results + ") } }";
}

TEST(Check, RefusesWrongResults) {
  const BadText cases[] = {
      {"tensor a f32 [1] [1]", "function 'f' has 5 outputs, this variant returns 1"},
      {"int n, int n, float t, none, int n", "output 'a' has the kind tensor, this result has not"},
      {"tensor z f32 [1] [1], int n, float t, none, int n",
       "the result must lie in the output's own buffer, 'a'"},
      {"tensor a f16 [1] [1], int n, float t, none, int n", "output 'a' is f32 of rank 1"},
      {"tensor a f32 [1, 1] [1, 1], int n, float t, none, int n", "output 'a' is f32 of rank 1"},
      {"tensor a f32 [1] [1], int t, float t, none, int n",
       "this output is an int, this is a float: write trunc, floor or ceil"},
      {"tensor a f32 [1] [1], int n, float n, none, int n",
       "output 'c' is a float: write float(...)"},
      {"tensor a f32 [1] [1], int n, float t, int n, int n",
       "output 'd' has the kind none, this result has not"},
      {"tensor a f32 [1] [1], int n, float t, none, float t",
       "output 'e' has the kind bool, this result has not"},
  };
  for (const BadText& c : cases) EXPECT_EQ(text_of(error_of(returns(c.text))), c.error);
  EXPECT_EQ(error_of(returns("tensor a f32 [1] [1], int n, float t, none, int true")), "");
}

}  // namespace
}  // namespace husk::test

// Asserts in kernels that store the number of a failed check, as a GPU's kernels do: which call
// reports the failure, when, and with which text. tests/graph has the same tests on the CUDA port.
#include <cstring>

#include "fixture.h"

namespace husk::test {
namespace {

const char* const kAsserts = R"(
assert "kernel a: index out of bounds"
assert "kernel b: index out of bounds"
function once {
  input n int 0..100
  variant cpu {
    launch fail_assert grid (1, 1, 1) (n, asserts)
    return ()
  }
}
function reads {
  input n int 0..100
  output found int
  variant cpu {
    buffer word bytes 8 align 64
    launch fail_assert grid (1, 1, 1) (n, asserts) at "model.py:7 x[i]"
    fill i64 (write word, 3)
    read i64 (read word)
    return (int result(0))
  }
}
)";

TEST(Asserts, AreToldOnceByTheNextCallThatWaitsOrRuns) {
  Machine m(kAsserts);
  ASSERT_NE(m.session, nullptr) << m.error.text;
  ASSERT_EQ(m.run({integer(1)}, {}), HUSK_OK) << m.error.text;
  EXPECT_EQ(husk_session_wait(m.session, &m.error), HUSK_KERNEL);
  EXPECT_STREQ(m.error.text, "kernel a: index out of bounds");
  EXPECT_EQ(husk_session_wait(m.session, &m.error), HUSK_OK);
  ASSERT_EQ(m.run({integer(2)}, {}), HUSK_OK) << m.error.text;
  EXPECT_EQ(m.run({integer(0)}, {}), HUSK_KERNEL);
  EXPECT_STREQ(m.error.text, "function 'once': kernel b: index out of bounds");
  EXPECT_EQ(m.run({integer(0)}, {}), HUSK_OK);
  EXPECT_EQ(husk_session_wait(m.session, nullptr), HUSK_OK);
}

// A value that is read after a failed assert may be anything. The run does not report the failure;
// the wait does.
TEST(Asserts, OfARunThatReads) {
  Machine m(kAsserts);
  ASSERT_EQ(m.run({integer(2)}, {none()}, 1), HUSK_OK) << m.error.text;
  EXPECT_EQ(husk_session_wait(m.session, &m.error), HUSK_KERNEL);
  EXPECT_STREQ(m.error.text, "kernel b: index out of bounds");
  ASSERT_EQ(m.run({integer(0)}, {none()}, 1), HUSK_OK) << m.error.text;
  EXPECT_EQ(m.results[0].as.i, 3);
}

}  // namespace
}  // namespace husk::test

// Asserts that kernels write down, as those of a GPU do: who is told, when, and in which words. On the GPU's port: tests/graph.
#include "fixture.h"

#include <cstring>

namespace husk::test {
namespace {

const char* const kProgram = R"(
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
  Machine m(kProgram);
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

// What is read behind a failed assert may be anything: the run says nothing of it, the wait does.
TEST(Asserts, OfARunThatReads) {
  Machine m(kProgram);
  ASSERT_EQ(m.run({integer(2)}, {none()}, 1), HUSK_OK) << m.error.text;
  EXPECT_EQ(husk_session_wait(m.session, &m.error), HUSK_KERNEL);
  EXPECT_STREQ(m.error.text, "kernel b: index out of bounds");
  ASSERT_EQ(m.run({integer(0)}, {none()}, 1), HUSK_OK) << m.error.text;
  EXPECT_EQ(m.results[0].as.i, 3);
}

}  // namespace
}  // namespace husk::test

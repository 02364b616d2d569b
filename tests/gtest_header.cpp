// The program that <gtest/gtest.h> is compiled for, which the others use (CMakeLists.txt).
int main() {}

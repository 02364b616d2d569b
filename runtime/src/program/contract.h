// Contracts of ops (husk_op.contract): the text that says how an op uses the memory of its
// arguments.
#pragma once

#include "base/status.h"
#include "model/rows.h"

namespace husk::runtime {

// A name in the text of a contract, which is not terminated.
struct ContractName {
  const char* text = nullptr;
  int length = 0;

  bool operator==(const ContractName& other) const;
};

// The part of a contract that is about one argument.
struct ArgumentContract {
  ContractName name;
  uint32_t access = HUSK_ACCESS_READ;
  ContractName same_as;  // the argument whose tensor this argument may be; no text: none
  bool optional = false;
};

// Checks the form of the contract of the op `name`. A null contract is right.
Status check_contract(const char* name, const char* contract, husk_error* error);

// Returns the part of a contract that is about an argument of an extern step, given by its index
// among the step's arguments. An item of a list has the part of the list.
ArgumentContract argument_contract(const char* contract, const Code& code,
                                   const fb::Instruction& step, uint32_t argument);

// Checks that an extern step passes as many arguments as the contract has, and that its access bits
// say at least what the contract says.
Status check_call(const char* contract, const Code& code, const fb::Instruction& step,
                  husk_error* error);

}  // namespace husk::runtime

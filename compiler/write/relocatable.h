// Reads relocatable ELF files: the kernels of a host image, as the exporter's compiler has made
// them. Source of the layout: the System V ABI, chapter 4. Functions throw a CompileError that
// names the image.
#pragma once

#include <elf.h>

#include <optional>
#include <span>
#include <string>
#include <vector>

namespace husk::compiler {

struct Relocatable {
  struct Section {
    std::string name;
    Elf64_Shdr header;
    std::span<const uint8_t> bytes;  // empty if the section has none in the file
    std::vector<Elf64_Rela> relocations;
  };
  struct Symbol {
    std::string name;
    Elf64_Sym row;
  };

  std::vector<Section> sections;  // by index in the file; relocations name symbols by index
  std::vector<Symbol> symbols;
};

// The machine of an ELF file; 0 if the bytes are no 64-bit little-endian ELF file.
uint16_t elf_machine(std::span<const uint8_t> file);

// The relocatable file that a shared object contains in its section `.husk.object`, if it has one.
std::optional<std::span<const uint8_t>> find_object(std::span<const uint8_t> image,
                                                    const std::string& name);

// Every index, offset and name of the result lies inside of the file, except for the symbols of
// relocations, which are compared with the number of symbols.
Relocatable read_relocatable(std::span<const uint8_t> file, const std::string& name);

}  // namespace husk::compiler

#include "write/relocatable.h"

#include <cstring>

#include "ir/compile_error.h"

namespace husk::compiler {
namespace {

using Bytes = std::span<const uint8_t>;

// Reads rows of an ELF file, which may lie at any address.
class Reader {
 public:
  Reader(Bytes file, const std::string& name) : file_(file), name_(name) {}

  [[noreturn]] void refuse(const char* what) const {
    fail({}, "image '{}': {} of its ELF file is damaged; export the model again", name_, what);
  }
  Bytes range(uint64_t offset, uint64_t size, const char* what) const {
    if (offset > file_.size() || size > file_.size() - offset) refuse(what);
    return file_.subspan(offset, size);
  }
  template <class T>
  std::vector<T> rows(Bytes bytes, const char* what) const {
    if (bytes.size() % sizeof(T) != 0) refuse(what);
    std::vector<T> out(bytes.size() / sizeof(T));
    if (!out.empty()) std::memcpy(out.data(), bytes.data(), bytes.size());
    return out;
  }
  // The text at `offset` of a string table.
  std::string text(Bytes table, uint64_t offset, const char* what) const {
    if (offset >= table.size()) refuse(what);
    const auto* begin = reinterpret_cast<const char*>(table.data()) + offset;
    const size_t length = strnlen(begin, table.size() - offset);
    if (length == table.size() - offset) refuse(what);
    return {begin, length};
  }

  Elf64_Ehdr header() const {
    Elf64_Ehdr out;
    std::memcpy(&out, range(0, sizeof(out), "the header").data(), sizeof(out));
    return out;
  }
  std::vector<Elf64_Shdr> section_headers() const {
    const Elf64_Ehdr head = header();
    if (head.e_shnum != 0 && head.e_shentsize != sizeof(Elf64_Shdr)) refuse("the section table");
    return rows<Elf64_Shdr>(
        range(head.e_shoff, uint64_t{head.e_shnum} * sizeof(Elf64_Shdr), "the section table"),
        "the section table");
  }
  Bytes bytes(const Elf64_Shdr& section) const {
    if (section.sh_type == SHT_NOBITS || section.sh_type == SHT_NULL) return {};
    return range(section.sh_offset, section.sh_size, "a section");
  }
  // The section with that index.
  const Elf64_Shdr& at(const std::vector<Elf64_Shdr>& sections, uint64_t index) const {
    if (index >= sections.size()) refuse("the index of a section");
    return sections[index];
  }

 private:
  Bytes file_;
  const std::string& name_;
};

}  // namespace

uint16_t elf_machine(Bytes file) {
  Elf64_Ehdr head;
  if (file.size() < sizeof(head)) return 0;
  std::memcpy(&head, file.data(), sizeof(head));
  const bool known = std::memcmp(head.e_ident, ELFMAG, SELFMAG) == 0 &&
                     head.e_ident[EI_CLASS] == ELFCLASS64 && head.e_ident[EI_DATA] == ELFDATA2LSB;
  return known ? head.e_machine : 0;
}

std::optional<Bytes> find_object(Bytes image, const std::string& name) {
  if (elf_machine(image) == 0) return std::nullopt;
  const Reader reader(image, name);
  const std::vector<Elf64_Shdr> sections = reader.section_headers();
  if (sections.empty()) return std::nullopt;
  const Bytes names = reader.bytes(reader.at(sections, reader.header().e_shstrndx));
  for (const Elf64_Shdr& section : sections)
    if (section.sh_type == SHT_PROGBITS &&
        reader.text(names, section.sh_name, "the name of a section") == ".husk.object")
      return reader.bytes(section);
  return std::nullopt;
}

Relocatable read_relocatable(Bytes file, const std::string& name) {
  const Reader reader(file, name);
  if (elf_machine(file) == 0 || reader.header().e_type != ET_REL) reader.refuse("the header");
  const std::vector<Elf64_Shdr> headers = reader.section_headers();
  const Bytes names = reader.bytes(reader.at(headers, reader.header().e_shstrndx));
  Relocatable out;
  for (const Elf64_Shdr& header : headers)
    out.sections.push_back({reader.text(names, header.sh_name, "the name of a section"),
                            header,
                            reader.bytes(header),
                            {}});
  for (size_t i = 0; i < headers.size(); ++i) {
    if (headers[i].sh_type != SHT_SYMTAB) continue;
    const Bytes texts = reader.bytes(reader.at(headers, headers[i].sh_link));
    for (const Elf64_Sym& row : reader.rows<Elf64_Sym>(out.sections[i].bytes, "the symbol table")) {
      if (row.st_shndx < SHN_LORESERVE) (void)reader.at(headers, row.st_shndx);
      out.symbols.push_back({reader.text(texts, row.st_name, "the name of a symbol"), row});
    }
  }
  for (size_t i = 0; i < headers.size(); ++i) {
    if (headers[i].sh_type == SHT_REL) reader.refuse("a table of relocations without addends");
    if (headers[i].sh_type != SHT_RELA) continue;
    const Elf64_Shdr& target = reader.at(headers, headers[i].sh_info);
    auto& relocations = out.sections[headers[i].sh_info].relocations;
    for (const Elf64_Rela& row : reader.rows<Elf64_Rela>(out.sections[i].bytes, "a relocation")) {
      if (ELF64_R_SYM(row.r_info) >= out.symbols.size() || row.r_offset >= target.sh_size)
        reader.refuse("a relocation");
      relocations.push_back(row);
    }
  }
  return out;
}

}  // namespace husk::compiler

#include "write/object.h"

#include <elf.h>

#include <cctype>
#include <cstring>

namespace husk::compiler {
namespace {

constexpr size_t kAlign = 4096;  // alignment of constants, which are used in place

// The bytes of a file that is built from the first byte to the last.
class ObjectFile {
 public:
  // Appends aligned bytes; returns their offset.
  size_t append(const void* data, size_t size, size_t align) {
    bytes_.resize((bytes_.size() + align - 1) / align * align);
    const size_t at = bytes_.size();
    const auto* begin = static_cast<const uint8_t*>(data);
    bytes_.insert(bytes_.end(), begin, begin + size);
    return at;
  }
  template <class T>
  size_t append(const std::vector<T>& rows) {
    return append(rows.data(), rows.size() * sizeof(T), 8);
  }
  std::vector<uint8_t> take() { return std::move(bytes_); }
  uint8_t* data() { return bytes_.data(); }

 private:
  std::vector<uint8_t> bytes_;
};

enum Section : uint16_t { none, data, stack, symbols, names, section_names, count };

constexpr char kSectionNames[] = "\0.rodata.husk\0.note.GNU-stack\0.symtab\0.strtab\0.shstrtab";
constexpr Elf64_Word kNameOffsets[] = {0, 1, 14, 30, 38, 46};

Elf64_Shdr section(Section which, Elf64_Word type, size_t offset, size_t size, size_t align) {
  Elf64_Shdr out = {};
  out.sh_name = kNameOffsets[which];
  out.sh_type = type;
  out.sh_offset = offset;
  out.sh_size = size;
  out.sh_addralign = align;
  return out;
}

Elf64_Ehdr header(Machine machine, size_t sections) {
  Elf64_Ehdr out = {};
  std::memcpy(out.e_ident, ELFMAG, SELFMAG);
  out.e_ident[EI_CLASS] = ELFCLASS64;
  out.e_ident[EI_DATA] = ELFDATA2LSB;
  out.e_ident[EI_VERSION] = EV_CURRENT;
  out.e_type = ET_REL;
  out.e_machine = static_cast<Elf64_Half>(machine);
  out.e_version = EV_CURRENT;
  out.e_shoff = sections;
  out.e_ehsize = sizeof(Elf64_Ehdr);
  out.e_shentsize = sizeof(Elf64_Shdr);
  out.e_shnum = Section::count;
  out.e_shstrndx = Section::section_names;
  return out;
}

}  // namespace

std::optional<Machine> machine_of(std::string_view name) {
  if (name == "x86-64") return Machine::x86_64;
  if (name == "aarch64") return Machine::aarch64;
  return std::nullopt;
}

std::string symbol_of(std::string_view file) {
  file.remove_prefix(file.find_last_of('/') + 1);
  std::string out = "husk_";
  for (const char c : file.substr(0, file.find('.')))
    out += std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  return out;
}

std::vector<uint8_t> make_object(std::span<const uint8_t> bytes, const std::string& symbol,
                                 Machine machine) {
  Elf64_Sym artifact = {};
  artifact.st_name = 1;
  artifact.st_info = ELF64_ST_INFO(STB_GLOBAL, STT_OBJECT);
  artifact.st_shndx = Section::data;
  artifact.st_size = bytes.size();
  const std::vector<Elf64_Sym> table = {Elf64_Sym{}, artifact};
  const std::string strings = '\0' + symbol + '\0';

  ObjectFile file;
  const Elf64_Ehdr placeholder = {};  // the header follows when the sections are known
  file.append(&placeholder, sizeof(placeholder), 8);
  const size_t at = file.append(bytes.data(), bytes.size(), kAlign);
  std::vector<Elf64_Shdr> sections(Section::count);
  sections[Section::data] = section(Section::data, SHT_PROGBITS, at, bytes.size(), kAlign);
  sections[Section::data].sh_flags = SHF_ALLOC;
  // An empty .note.GNU-stack tells the linker that no executable stack is needed.
  sections[Section::stack] = section(Section::stack, SHT_PROGBITS, at, 0, 1);
  sections[Section::symbols] = section(Section::symbols, SHT_SYMTAB, file.append(table),
                                       table.size() * sizeof(Elf64_Sym), 8);
  sections[Section::symbols].sh_link = Section::names;
  sections[Section::symbols].sh_info = 1;  // index of the first symbol that is not local
  sections[Section::symbols].sh_entsize = sizeof(Elf64_Sym);
  sections[Section::names] = section(Section::names, SHT_STRTAB,
                                     file.append(strings.data(), strings.size(), 1), strings.size(),
                                     1);
  sections[Section::section_names] = section(Section::section_names, SHT_STRTAB,
                                             file.append(kSectionNames, sizeof(kSectionNames), 1),
                                             sizeof(kSectionNames), 1);
  const Elf64_Ehdr head = header(machine, file.append(sections));
  std::memcpy(file.data(), &head, sizeof(head));
  return file.take();
}

}  // namespace husk::compiler

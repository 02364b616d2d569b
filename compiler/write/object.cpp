#include "write/object.h"

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <cstring>
#include <map>
#include <utility>

#include <husk/detail/linked.h>

#include "base/align.h"
#include "ir/compile_error.h"
#include "write/launch_code.h"

namespace husk::compiler {
namespace {

constexpr size_t kAlign = 4096;  // alignment of constants, which are used in place

// The relocations that write the address of a symbol, and its distance from the written bytes.
struct RelocationTypes {
  uint32_t address, distance;
};
RelocationTypes relocation_types(Machine machine) {
  if (machine == Machine::aarch64) return {R_AARCH64_ABS64, R_AARCH64_PREL64};
  return {R_X86_64_64, R_X86_64_PC64};
}

// A symbol of an ObjectFile. Its index is known when all symbols are, because local symbols come
// before global ones.
struct SymbolHandle {
  uint32_t index = 0;  // among the local or the global symbols
  bool global = false;
};

// A relocatable ELF file that is being built.
class ObjectFile {
 public:
  // Adds a section and a symbol for it; sh_size, sh_flags, sh_type, sh_addralign and sh_entsize of
  // `header` are used. `bytes` must outlive the file.
  uint16_t add_section(const std::string& name, const Elf64_Shdr& header,
                       std::span<const uint8_t> bytes);
  // The symbol of a section.
  SymbolHandle section_symbol(uint16_t section) const { return sections_[section].symbol; }
  // Links a section to another one, with the meaning that its flags have.
  void link(uint16_t section, uint16_t to) { sections_[section].header.sh_link = to; }

  SymbolHandle add_local(const Elf64_Sym& row);
  // Adds a global symbol, or returns the one of that name.
  SymbolHandle add_global(const std::string& name, const Elf64_Sym& row);

  void relocate(uint16_t section, uint64_t offset, uint32_t type, SymbolHandle symbol,
                int64_t addend) {
    sections_[section].relocations.push_back({offset, type, symbol, addend});
  }
  std::vector<uint8_t> write(Machine machine);

 private:
  struct Relocation {
    uint64_t offset;
    uint32_t type;
    SymbolHandle symbol;
    int64_t addend;
  };
  struct Section {
    std::string name;
    Elf64_Shdr header = {};
    std::span<const uint8_t> bytes;
    SymbolHandle symbol;
    std::vector<Relocation> relocations;
  };

  // Symbol 0 is none.
  uint64_t symbol_index(SymbolHandle symbol) const {
    return 1 + symbol.index + (symbol.global ? locals_.size() : 0);
  }
  size_t append(std::span<const uint8_t> bytes, size_t align);
  template <class T>
  size_t append_rows(const std::vector<T>& rows) {
    return append({reinterpret_cast<const uint8_t*>(rows.data()), rows.size() * sizeof(T)}, 8);
  }
  Elf64_Shdr text_section(const std::string& texts);

  std::vector<Section> sections_ = {Section{}};
  std::vector<Elf64_Sym> locals_, globals_;
  std::string names_ = std::string(1, '\0');  // of symbols
  std::map<std::string, uint32_t> global_by_name_;
  std::vector<uint8_t> out_;
};

uint16_t ObjectFile::add_section(const std::string& name, const Elf64_Shdr& header,
                                 std::span<const uint8_t> bytes) {
  const auto index = static_cast<uint16_t>(sections_.size());
  Section section;
  section.name = name;
  section.header.sh_type = header.sh_type;
  section.header.sh_flags = header.sh_flags;
  section.header.sh_size = header.sh_size;
  section.header.sh_addralign = header.sh_addralign;
  section.header.sh_entsize = header.sh_entsize;
  section.bytes = bytes;
  Elf64_Sym symbol = {};
  symbol.st_info = ELF64_ST_INFO(STB_LOCAL, STT_SECTION);
  symbol.st_shndx = index;
  section.symbol = add_local(symbol);
  sections_.push_back(std::move(section));
  return index;
}

SymbolHandle ObjectFile::add_local(const Elf64_Sym& row) {
  locals_.push_back(row);
  return {static_cast<uint32_t>(locals_.size() - 1), false};
}

SymbolHandle ObjectFile::add_global(const std::string& name, const Elf64_Sym& row) {
  const auto [entry, inserted] = global_by_name_.try_emplace(
      name, static_cast<uint32_t>(globals_.size()));
  if (inserted) {
    globals_.push_back(row);
    globals_.back().st_name = static_cast<Elf64_Word>(names_.size());
    names_ += name + '\0';
  }
  return {entry->second, true};
}

size_t ObjectFile::append(std::span<const uint8_t> bytes, size_t align) {
  out_.resize(align_up(out_.size(), align ? align : 1));
  const size_t at = out_.size();
  out_.insert(out_.end(), bytes.begin(), bytes.end());
  return at;
}

Elf64_Shdr ObjectFile::text_section(const std::string& texts) {
  Elf64_Shdr out = {};
  out.sh_type = SHT_STRTAB;
  out.sh_offset = append({reinterpret_cast<const uint8_t*>(texts.data()), texts.size()}, 1);
  out.sh_size = texts.size();
  out.sh_addralign = 1;
  return out;
}

std::vector<uint8_t> ObjectFile::write(Machine machine) {
  out_.assign(sizeof(Elf64_Ehdr), 0);  // the header follows when the sections are known
  std::string section_names(1, '\0');
  const auto named = [&](Elf64_Shdr header, const std::string& name) {
    header.sh_name = static_cast<Elf64_Word>(section_names.size());
    section_names += name + '\0';
    return header;
  };
  std::vector<Elf64_Shdr> headers = {Elf64_Shdr{}};
  for (size_t i = 1; i < sections_.size(); ++i) {
    Elf64_Shdr header = named(sections_[i].header, sections_[i].name);
    header.sh_offset = append(sections_[i].bytes, header.sh_addralign);
    headers.push_back(header);
  }
  const size_t symbols_at = sections_.size() +
                            static_cast<size_t>(std::count_if(sections_.begin(), sections_.end(),
                                                              [](const Section& section) {
                                                                return !section.relocations.empty();
                                                              }));
  for (size_t i = 1; i < sections_.size(); ++i) {
    if (sections_[i].relocations.empty()) continue;
    std::vector<Elf64_Rela> rows;
    for (const Relocation& r : sections_[i].relocations)
      rows.push_back({r.offset, ELF64_R_INFO(symbol_index(r.symbol), r.type), r.addend});
    Elf64_Shdr header = {};
    header.sh_type = SHT_RELA;
    header.sh_flags = SHF_INFO_LINK;
    header.sh_offset = append_rows(rows);
    header.sh_size = rows.size() * sizeof(Elf64_Rela);
    header.sh_link = static_cast<Elf64_Word>(symbols_at);
    header.sh_info = static_cast<Elf64_Word>(i);
    header.sh_addralign = 8;
    header.sh_entsize = sizeof(Elf64_Rela);
    headers.push_back(named(header, ".rela" + sections_[i].name));
  }
  std::vector<Elf64_Sym> symbols = {Elf64_Sym{}};
  symbols.insert(symbols.end(), locals_.begin(), locals_.end());
  symbols.insert(symbols.end(), globals_.begin(), globals_.end());
  Elf64_Shdr table = {};
  table.sh_type = SHT_SYMTAB;
  table.sh_offset = append_rows(symbols);
  table.sh_size = symbols.size() * sizeof(Elf64_Sym);
  table.sh_link = static_cast<Elf64_Word>(symbols_at + 1);
  table.sh_info = static_cast<Elf64_Word>(1 + locals_.size());  // the first that is not local
  table.sh_addralign = 8;
  table.sh_entsize = sizeof(Elf64_Sym);
  headers.push_back(named(table, ".symtab"));
  headers.push_back(named(text_section(names_), ".strtab"));
  const Elf64_Shdr last = named({}, ".shstrtab");
  headers.push_back(text_section(section_names));
  headers.back().sh_name = last.sh_name;
  if (headers.size() >= SHN_LORESERVE)
    fail({}, "the object file would have {} sections, {} are the most", headers.size(),
         SHN_LORESERVE - 1);

  Elf64_Ehdr head = {};
  std::memcpy(head.e_ident, ELFMAG, SELFMAG);
  head.e_ident[EI_CLASS] = ELFCLASS64;
  head.e_ident[EI_DATA] = ELFDATA2LSB;
  head.e_ident[EI_VERSION] = EV_CURRENT;
  head.e_type = ET_REL;
  head.e_machine = static_cast<Elf64_Half>(machine);
  head.e_version = EV_CURRENT;
  head.e_shoff = append_rows(headers);
  head.e_ehsize = sizeof(Elf64_Ehdr);
  head.e_shentsize = sizeof(Elf64_Shdr);
  head.e_shnum = static_cast<Elf64_Half>(headers.size());
  head.e_shstrndx = static_cast<Elf64_Half>(headers.size() - 1);
  std::memcpy(out_.data(), &head, sizeof(head));
  return std::move(out_);
}

// The sections of a kernel object that an ObjectFile has, by the index in the kernel object; 0 for
// those that are left out: everything that is not part of the running program.
class KernelSections {
 public:
  KernelSections(const KernelObject& kernels, ObjectFile& file) : kernels_(kernels), file_(file) {
    const auto& sections = kernels.object.sections;
    index_.resize(sections.size());
    for (size_t i = 0; i < sections.size(); ++i) {
      const Elf64_Shdr& header = sections[i].header;
      if (!(header.sh_flags & SHF_ALLOC) || header.sh_type == SHT_NOTE) continue;
      if (sections[i].name == ".eh_frame") continue;  // kernels throw nothing
      // Groups have done their service when the exporter has linked the objects to one.
      Elf64_Shdr kept = header;
      kept.sh_flags &= ~Elf64_Xword{SHF_GROUP | SHF_INFO_LINK};
      index_[i] = file.add_section(sections[i].name, kept, sections[i].bytes);
    }
    for (size_t i = 0; i < sections.size(); ++i)
      if (index_[i] && (sections[i].header.sh_flags & SHF_LINK_ORDER) &&
          sections[i].header.sh_link < index_.size())
        file.link(index_[i], index_[sections[i].header.sh_link]);
  }
  // Adds the symbols and the relocations.
  void add_symbols();
  // The symbols that ports find by name, in order.
  const std::vector<std::pair<const Relocatable::Symbol*, SymbolHandle>>& exported() const {
    return exported_;
  }
  // The symbol of a kernel. Fails if no port would find it.
  SymbolHandle kernel(const std::string& name) const {
    const auto found = std::find_if(exported_.begin(), exported_.end(), [&](const auto& each) {
      return each.first->name == name && ELF64_ST_TYPE(each.first->row.st_info) == STT_FUNC;
    });
    if (found == exported_.end())
      fail({}, "image '{}': function '{}' of its object is not exported, or no part of the program",
           kernels_.name, name);
    return found->second;
  }

 private:
  std::optional<SymbolHandle> add(const Relocatable::Symbol& symbol);

  const KernelObject& kernels_;
  ObjectFile& file_;
  std::vector<uint16_t> index_;
  std::vector<std::pair<const Relocatable::Symbol*, SymbolHandle>> exported_;
};

// The symbol's place in the file; nullopt if it is of no use there.
std::optional<SymbolHandle> KernelSections::add(const Relocatable::Symbol& symbol) {
  Elf64_Sym row = symbol.row;
  row.st_name = 0;
  const unsigned char type = ELF64_ST_TYPE(row.st_info);
  if (type == STT_FILE) return std::nullopt;
  if (row.st_shndx == SHN_UNDEF) {
    if (symbol.name.empty()) return std::nullopt;
    const bool weak = ELF64_ST_BIND(row.st_info) == STB_WEAK;
    row.st_info = ELF64_ST_INFO(weak ? STB_WEAK : STB_GLOBAL, type);
    row.st_other = STV_DEFAULT;
    return file_.add_global(symbol.name, row);
  }
  if (row.st_shndx != SHN_ABS) {
    if (row.st_shndx >= SHN_LORESERVE)
      fail({}, "image '{}': symbol '{}' has the special section {}, which is not supported",
           kernels_.name, symbol.name, row.st_shndx);
    row.st_shndx = index_[row.st_shndx];
    if (row.st_shndx == 0) return std::nullopt;
    if (type == STT_SECTION) return file_.section_symbol(row.st_shndx);
  }
  const bool is_exported = kernels_.exports.count(symbol.name) != 0 &&
                           ELF64_ST_BIND(row.st_info) != STB_LOCAL &&
                           (type == STT_FUNC || type == STT_OBJECT);
  row.st_info = ELF64_ST_INFO(STB_LOCAL, type);
  row.st_other = STV_DEFAULT;
  const SymbolHandle handle = file_.add_local(row);
  if (is_exported) exported_.emplace_back(&symbol, handle);
  return handle;
}

void KernelSections::add_symbols() {
  const Relocatable& object = kernels_.object;
  std::vector<std::optional<SymbolHandle>> symbols;
  for (const Relocatable::Symbol& symbol : object.symbols) symbols.push_back(add(symbol));
  for (size_t i = 0; i < object.sections.size(); ++i) {
    if (!index_[i]) continue;
    for (const Elf64_Rela& r : object.sections[i].relocations) {
      const auto type = static_cast<uint32_t>(ELF64_R_TYPE(r.r_info));
      const auto& symbol = symbols[ELF64_R_SYM(r.r_info)];
      if (!symbol)
        fail({}, "image '{}': section {} refers to a symbol that is not part of the program",
             kernels_.name, object.sections[i].name);
      file_.relocate(index_[i], r.r_offset, type, *symbol, r.r_addend);
    }
  }
}

Elf64_Shdr section_header(Elf64_Word type, Elf64_Xword flags, size_t align, size_t size) {
  Elf64_Shdr out = {};
  out.sh_type = type;
  out.sh_flags = flags;
  out.sh_addralign = align;
  out.sh_size = size;
  return out;
}

// The table of husk/detail/linked.h: its bytes, and the places where the linker writes addresses.
class Table {
 public:
  struct Address {
    size_t at;  // in `bytes`
    SymbolHandle symbol;
    size_t addend;
  };

  // Appends rows whose addresses are zero; returns their offset.
  template <class T>
  size_t append(const std::vector<T>& rows) {
    const size_t at = bytes.size();
    bytes.resize(at + rows.size() * sizeof(T));
    if (!rows.empty()) std::memcpy(bytes.data() + at, rows.data(), rows.size() * sizeof(T));
    return at;
  }
  // Returns the offset of a text in `texts`.
  size_t text(const std::string& text) {
    const size_t at = texts.size();
    texts += text + '\0';
    return at;
  }

  std::vector<uint8_t> bytes;
  std::string texts;
  std::vector<Address> addresses, own, names;  // of symbols, of rows of `bytes`, of `texts`
};

// The code of rows of launches: its section, and where the code of each row begins in there.
struct LaunchSection {
  SymbolHandle symbol;
  std::vector<size_t> begins;
};

// Adds the section. `bytes` receives its content, and must outlive the file.
LaunchSection add_launches(const std::vector<LaunchRow>& launches,
                           const std::vector<KernelSections>& sections, Machine machine,
                           std::vector<uint8_t>& bytes, ObjectFile& file) {
  constexpr size_t kCodeAlign = 16;
  LaunchSection out;
  std::vector<std::pair<uint64_t, SymbolHandle>> calls;
  for (const LaunchRow& row : launches) {
    std::vector<uint32_t> params;
    for (const LaunchRow::Call& call : row.calls) params.push_back(call.params);
    const LaunchCode code = make_launch_code(machine, params);
    bytes.resize(align_up(bytes.size(), kCodeAlign));
    out.begins.push_back(bytes.size());
    for (size_t i = 0; i < row.calls.size(); ++i)
      calls.emplace_back(bytes.size() + code.calls[i],
                         sections[row.calls[i].image].kernel(row.calls[i].symbol));
    bytes.insert(bytes.end(), code.bytes.begin(), code.bytes.end());
  }
  const uint16_t section = file.add_section(
      ".text.husk",
      section_header(SHT_PROGBITS, SHF_ALLOC | SHF_EXECINSTR, kCodeAlign, bytes.size()), bytes);
  const auto [type, addend] = call_relocation(machine);
  for (const auto& [at, kernel] : calls) file.relocate(section, at, type, kernel, addend);
  out.symbol = file.section_symbol(section);
  return out;
}

// Builds the table. `state` is the symbol of the LinkedStates, one for each image.
Table make_table(const std::vector<KernelObject>& kernels,
                 const std::vector<KernelSections>& sections,
                 const std::vector<LaunchRow>& launches, const LaunchSection& code, Machine machine,
                 SymbolHandle state) {
  using namespace detail;
  Table table;
  LinkedTable head = {};
  head.magic = kLinkedMagic;
  head.machine = static_cast<uint64_t>(machine);
  head.image_count = kernels.size();
  head.launches_count = launches.size();
  table.append(std::vector<LinkedTable>{head});
  std::vector<LinkedImage> images(kernels.size());
  for (size_t i = 0; i < kernels.size(); ++i)
    images[i].symbol_count = sections[i].exported().size();
  const size_t images_at = table.append(images);
  table.own.push_back({offsetof(LinkedTable, images), {}, images_at});
  for (size_t i = 0; i < kernels.size(); ++i) {
    const size_t image_at = images_at + i * sizeof(LinkedImage);
    std::vector<LinkedSymbol> rows;
    for (const auto& [symbol, handle] : sections[i].exported()) {
      const bool function = ELF64_ST_TYPE(symbol->row.st_info) == STT_FUNC;
      rows.push_back(
          {nullptr, nullptr, symbol->row.st_size, function ? kLinkedFunction : kLinkedObject});
    }
    const size_t rows_at = table.append(rows);
    table.names.push_back(
        {image_at + offsetof(LinkedImage, name), {}, table.text(kernels[i].name)});
    table.own.push_back({image_at + offsetof(LinkedImage, symbols), {}, rows_at});
    table.addresses.push_back(
        {image_at + offsetof(LinkedImage, state), state, i * sizeof(LinkedState)});
    size_t row_at = rows_at;
    for (const auto& [symbol, handle] : sections[i].exported()) {
      table.names.push_back({row_at + offsetof(LinkedSymbol, name), {}, table.text(symbol->name)});
      table.addresses.push_back({row_at + offsetof(LinkedSymbol, address), handle, 0});
      row_at += sizeof(LinkedSymbol);
    }
  }
  std::vector<LinkedLaunches> rows;
  for (const LaunchRow& row : launches)
    rows.push_back({nullptr, row.function, row.variant, row.first_step,
                    static_cast<uint32_t>(row.calls.size())});
  const size_t rows_at = table.append(rows);
  table.own.push_back({offsetof(LinkedTable, launches), {}, rows_at});
  for (size_t i = 0; i < launches.size(); ++i)
    table.addresses.push_back(
        {rows_at + i * sizeof(LinkedLaunches) + offsetof(LinkedLaunches, code), code.symbol,
         code.begins[i]});
  return table;
}

std::span<const uint8_t> bytes_of(const std::string& text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
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
                                 Machine machine, const std::vector<KernelObject>& kernels,
                                 const std::vector<LaunchRow>& launches) {
  using namespace detail;
  std::vector<uint8_t> with_offset;
  std::span<const uint8_t> data = bytes;
  if (!kernels.empty()) {
    with_offset.reserve(align_up(bytes.size(), kLinkedAlign) + sizeof(int64_t));
    with_offset.assign(bytes.begin(), bytes.end());
    with_offset.resize(align_up(bytes.size(), kLinkedAlign) + sizeof(int64_t));
    data = with_offset;
  }
  ObjectFile file;
  const uint16_t artifact = file.add_section(
      ".rodata.husk", section_header(SHT_PROGBITS, SHF_ALLOC, kAlign, data.size()), data);
  // An empty .note.GNU-stack tells the linker that no executable stack is needed.
  file.add_section(".note.GNU-stack", section_header(SHT_PROGBITS, 0, 1, 0), {});
  Elf64_Sym name = {};
  name.st_info = ELF64_ST_INFO(STB_GLOBAL, STT_OBJECT);
  name.st_shndx = artifact;
  name.st_size = bytes.size();
  file.add_global(symbol, name);
  if (kernels.empty()) return file.write(machine);

  std::vector<KernelSections> sections;
  for (const KernelObject& each : kernels) sections.emplace_back(each, file);
  for (KernelSections& each : sections) each.add_symbols();
  const uint16_t state = file.add_section(
      ".bss.husk",
      section_header(SHT_NOBITS, SHF_ALLOC | SHF_WRITE, alignof(LinkedState),
                     kernels.size() * sizeof(LinkedState)),
      {});
  std::vector<uint8_t> code;
  const LaunchSection code_section = add_launches(launches, sections, machine, code, file);
  const Table table = make_table(kernels, sections, launches, code_section, machine,
                                 file.section_symbol(state));
  const uint16_t texts = file.add_section(
      ".rodata.husk_names", section_header(SHT_PROGBITS, SHF_ALLOC, 1, table.texts.size()),
      bytes_of(table.texts));
  const uint16_t rows = file.add_section(
      ".data.rel.ro.husk",
      section_header(SHT_PROGBITS, SHF_ALLOC | SHF_WRITE, alignof(LinkedTable), table.bytes.size()),
      table.bytes);
  const auto [address, distance] = relocation_types(machine);
  const auto relocate = [&, type = address](const Table::Address& a, SymbolHandle to) {
    file.relocate(rows, a.at, type, to, static_cast<int64_t>(a.addend));
  };
  for (const Table::Address& a : table.own) relocate(a, file.section_symbol(rows));
  for (const Table::Address& a : table.names) relocate(a, file.section_symbol(texts));
  for (const Table::Address& a : table.addresses) relocate(a, a.symbol);
  file.relocate(artifact, data.size() - sizeof(int64_t), distance, file.section_symbol(rows), 0);
  return file.write(machine);
}

}  // namespace husk::compiler

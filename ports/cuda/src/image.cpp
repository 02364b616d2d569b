#include "image.h"

#include <cstring>

#include "error.h"

namespace husk::cuda {

namespace {

// Layouts and values are those of the System V gABI, "Object Files", 64-bit class.
struct ElfHeader {
  unsigned char ident[16];
  uint16_t type, machine;
  uint32_t version;
  uint64_t entry, phoff, shoff;
  uint32_t flags;
  uint16_t ehsize, phentsize, phnum, shentsize, shnum, shstrndx;
};
struct ElfSection {
  uint32_t name, type;
  uint64_t flags, address, offset, size;
  uint32_t link, info;
  uint64_t align, entry_size;
};
struct ElfSegment {
  uint32_t type, flags;
  uint64_t offset, virtual_address, physical_address, file_size, memory_size, align;
};
static_assert(sizeof(ElfHeader) == 64 && sizeof(ElfSection) == 64 && sizeof(ElfSegment) == 56,
              "ELF64 layouts");
constexpr uint32_t kNoBits = 8;              // SHT_NOBITS: a section without bytes in the file
constexpr uint16_t kExtendedCount = 0xFFFF;  // PN_XNUM
constexpr unsigned char kIdent[] = {0x7F, 'E', 'L', 'F', 2 /* 64 bits */, 1 /* little-endian */};

class Elf {
 public:
  explicit Elf(const husk_port_image& image)
      : bytes_(static_cast<const char*>(image.data)), size_(image.size) {}

  // Returns the first problem of the image, or null.
  const char* problem() {
    if (!inside(0, sizeof header_)) return "is shorter than an ELF header";
    memcpy(&header_, bytes_, sizeof header_);
    if (memcmp(header_.ident, kIdent, sizeof kIdent) != 0)
      return "is not a little-endian 64-bit ELF file";
    if (header_.shoff != 0) {
      if (const char* wrong = sections()) return wrong;
    } else if (header_.shnum != 0) {
      return "counts sections but has no table of them";
    }
    return header_.phnum != 0 ? segments() : nullptr;
  }

 private:
  bool inside(uint64_t offset, uint64_t size) const {
    return offset <= size_ && size <= size_ - offset;
  }
  bool table_inside(uint64_t offset, uint64_t count, uint64_t row) const {
    return offset <= size_ && count <= (size_ - offset) / row;
  }

  const char* sections() const {
    if (header_.shentsize != sizeof(ElfSection)) return "has section headers of another size";
    if (!inside(header_.shoff, sizeof(ElfSection))) return "has its section headers past its end";
    ElfSection section;
    memcpy(&section, bytes_ + header_.shoff, sizeof section);
    // If the header's field is too small for the number of sections, the first section holds it.
    const uint64_t count = header_.shnum ? header_.shnum : section.size;
    if (!table_inside(header_.shoff, count, sizeof section))
      return "has its section headers past its end";
    for (uint64_t i = 0; i < count; ++i) {
      memcpy(&section, bytes_ + header_.shoff + i * sizeof section, sizeof section);
      if (i == 0 || section.type == kNoBits) continue;
      if (!inside(section.offset, section.size)) return "has a section past its end";
    }
    return nullptr;
  }

  const char* segments() const {
    if (header_.phnum == kExtendedCount) return "has more program headers than this port reads";
    if (header_.phentsize != sizeof(ElfSegment)) return "has program headers of another size";
    if (!table_inside(header_.phoff, header_.phnum, sizeof(ElfSegment)))
      return "has its program headers past its end";
    for (uint64_t i = 0; i < header_.phnum; ++i) {
      ElfSegment segment;
      memcpy(&segment, bytes_ + header_.phoff + i * sizeof segment, sizeof segment);
      if (!inside(segment.offset, segment.file_size)) return "has a segment past its end";
    }
    return nullptr;
  }

  const char* bytes_;
  uint64_t size_;
  ElfHeader header_;
};

// Returns the problem of a PTX text, or null. The driver takes an image that does not begin with
// ASCII text for a binary and follows its offsets, so the first bytes must be ASCII. Later bytes
// may be UTF-8: paths in comments and .file lines.
const char* text_problem(const husk_port_image& image) {
  const auto* bytes = static_cast<const unsigned char*>(image.data);
  for (uint64_t i = 0; i < image.size; ++i) {
    if (bytes[i] == 0) return i ? nullptr : "is empty";
    const bool space = bytes[i] >= '\t' && bytes[i] <= '\r';
    const bool ascii = bytes[i] >= ' ' && bytes[i] <= '~';
    if (!ascii && !space && (i < 16 || bytes[i] < 0x80)) return "is not text";
  }
  return "does not end with a NUL";
}

}  // namespace

husk_status check_image(const husk_port_image& image, husk_error* error) {
  if (image.format != HUSK_IMAGE_CUBIN && image.format != HUSK_IMAGE_PTX) {
    return fail(error, HUSK_UNSUPPORTED,
                "image '%.80s' has format %d: this port loads cubins and PTX", image.name,
                image.format);
  }
  const bool cubin = image.format == HUSK_IMAGE_CUBIN;
  if (!image.data) return fail(error, HUSK_INVALID_FILE, "image '%.80s' has no bytes", image.name);
  const char* wrong = cubin ? Elf(image).problem() : text_problem(image);
  if (!wrong) return HUSK_OK;
  return fail(error, HUSK_INVALID_FILE, "%s '%.80s' of %llu bytes %s: export it again",
              cubin ? "cubin" : "PTX", image.name, static_cast<unsigned long long>(image.size),
              wrong);
}

}  // namespace husk::cuda

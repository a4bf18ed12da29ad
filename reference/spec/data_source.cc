#include "reference/spec/data_source.h"

#include <fmt/format.h>

namespace kvcheck {
namespace {

bool IsRegime(std::string_view regime) {
  return !regime.empty() && regime.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_") ==
                                std::string_view::npos;
}

bool IsHash(std::string_view hash) {
  return !hash.empty() && hash.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

}  // namespace

DataSource ParseDataSource(Piece piece) {
  const std::vector<Piece> parts = Split(piece, ':');
  DataSource data;
  data.regime = std::string(parts[0].text);
  if (data.regime.empty()) piece.Refuse("data is REGIME:SEED, file or file:HASH");
  if (!IsRegime(data.regime)) parts[0].Refuse("a regime is lower-case letters, digits and '_'");
  if (data.IsFile()) {
    if (parts.size() > 2) piece.Refuse("data is REGIME:SEED, file or file:HASH");
    if (parts.size() == 2) {
      data.file_hash = std::string(parts[1].text);
      if (!IsHash(data.file_hash)) parts[1].Refuse("a hash is lower-case hexadecimal");
    }
    return data;
  }
  if (parts.size() != 2) piece.Refuse("data is REGIME:SEED, file or file:HASH");
  data.seed = ParseUnsigned(parts[1]);
  return data;
}

std::string Print(const DataSource& data) {
  if (!data.IsFile()) return fmt::format("{}:{}", data.regime, data.seed);
  return data.file_hash.empty() ? "file" : "file:" + data.file_hash;
}

bool HasText(const DataSource& data) {
  return data.IsFile() ? data.file_hash.empty() || IsHash(data.file_hash) : IsRegime(data.regime);
}

}  // namespace kvcheck

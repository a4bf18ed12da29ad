#include "reference/spec/tolerance.h"

#include <fmt/format.h>

#include <limits>

namespace kvcheck {

std::string Print(const ToleranceRule& rule) {
  if (std::holds_alternative<ExactRule>(rule)) return "exact";
  if (const auto* ulp = std::get_if<UlpRule>(&rule)) return fmt::format("ulp:{}", ulp->ulps);
  const auto& sum = std::get<AbsRelRule>(rule);
  return fmt::format("abs:{},rel:{}", PrintReal(sum.absolute), PrintReal(sum.relative));
}

ToleranceRule ParseToleranceRule(Piece piece) {
  if (piece.text == "exact") return ExactRule{};
  AbsRelRule sum;
  bool has_absolute = false;
  bool has_relative = false;
  for (const Piece& term : Split(piece, ',')) {
    const std::vector<Piece> parts = Split(term, ':');
    if (parts.size() != 2) term.Refuse("a rule is exact, ulp:N, abs:X, rel:Y or abs:X,rel:Y");
    if (parts[0].text == "ulp" && parts[0].text.data() == piece.text.data()) {
      if (term.text.size() != piece.text.size()) term.Refuse("ulp:N stands alone");
      return UlpRule{ParseInt(parts[1], 0, std::numeric_limits<int64_t>::max())};
    }
    const bool absolute = parts[0].text == "abs";
    bool* seen = absolute ? &has_absolute : parts[0].text == "rel" ? &has_relative : nullptr;
    if (seen == nullptr || *seen) term.Refuse("a rule is exact, ulp:N, abs:X, rel:Y or abs:X,rel:Y");
    *seen = true;
    const double value = ParseReal(parts[1]);
    if (!(value >= 0)) parts[1].Refuse("a tolerance is at least 0");
    (absolute ? sum.absolute : sum.relative) = value;
  }
  return sum;
}

}  // namespace kvcheck

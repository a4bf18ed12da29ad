// Which prefix cases are defined: legal setups, and operations whose values have a text.

#include <fmt/format.h>

#include <string>
#include <string_view>

#include "reference/spec/error.h"
#include "reference/spec/prefix_case.h"
#include "reference/spec/prefix_limits.h"
#include "reference/spec/prefix_tokens.h"

namespace kvcheck {
namespace {

namespace limits = prefix_limits;

[[noreturn]] void Illegal(const std::string& what) { throw Error(ErrorCode::kIllegalCase, what); }

void CheckRange(std::string_view name, int64_t value, int64_t lowest, int64_t highest) {
  if (value < lowest || value > highest) {
    Illegal(fmt::format("{}={} is outside {}..{}", name, value, lowest, highest));
  }
}

void CheckType(DType x) {
  if (x != DType::kFloat32 && x != DType::kFloat16 && x != DType::kBFloat16) {
    Illegal(fmt::format("x={} is none of f32, f16 and bf16", ShortName(x)));
  }
}

void CheckFormat(const std::optional<KvFormat>& format, int64_t dim, int64_t heads,
                 std::string_view what) {
  if (!format) return;
  if (!Exists(*format)) Illegal(fmt::format("'{}' is not a format", Print(*format)));
  CheckHeadDim(*format, dim, std::string(what));
  CheckHeads(*format, heads, std::string(what));
  for (const Plane& plane : PlanesOf(*format, dim)) {
    if (plane.scope == PlaneScope::kTensor) {
      Illegal(
          fmt::format("{} '{}' has a parameter of the whole tensor, which no case of prefix "
                      "gives",
                      what, Print(*format)));
    }
  }
}

void CheckSetup(const PrefixSetup& setup) {
  for (const auto& [name, value] : {std::pair{"block", setup.block_tokens},
                                    {"layers", setup.layers},
                                    {"hkv", setup.kv_heads},
                                    {"dk", setup.k_dim},
                                    {"dv", setup.v_dim}}) {
    CheckRange(name, value, 1, limits::kMaxExtent);
  }
  CheckRange("tokens", setup.capacity_tokens, 1, limits::kMaxTokens);
  CheckRange("entries", setup.max_entries, 0, limits::kMaxTokens);
  CheckRange("quantize_from", setup.quantize_from, 0, limits::kMaxTokens);
  CheckRange("window", setup.window, 0, limits::kMaxTokens);
  CheckType(setup.x);
  CheckFormat(setup.k, setup.k_dim, setup.kv_heads, "k");
  CheckFormat(setup.v, setup.v_dim, setup.kv_heads, "v");
  if (setup.k.has_value() != setup.v.has_value()) Illegal("k and v are both given, or neither is");
  if (setup.capacity_tokens < setup.block_tokens) {
    Illegal(
        fmt::format("tokens={} is less than block={}", setup.capacity_tokens, setup.block_tokens));
  }
  if (!HasText(setup.data) || setup.data.IsFile()) Illegal("data is tokens:SEED");
}

void CheckTokens(const TokenRuns& runs) {
  for (const TokenRun& run : runs) {
    CheckRange("token", run.value, 0, limits::kMaxNumber);
    CheckRange("tokens", run.count, 1, limits::kMaxTokens);
  }
  CheckRange("tokens", CountTokens(runs), 0, limits::kMaxTokens);
}

void CheckIdentity(const PrefixIdentity& who) {
  for (const auto* text : {&who.model, &who.salt, &who.adapter, &who.image}) {
    if (*text && (*text)->size() > limits::kMaxIdentityBytes) {
      Illegal(fmt::format("more than {} bytes of identity", limits::kMaxIdentityBytes));
    }
  }
  CheckRange("version", who.version, 0, limits::kMaxNumber);
  if (who.version != 0 && !who.adapter) Illegal("version is that of an adapter's weights");
}

void CheckOp(const PrefixOp& op) {
  CheckRange("request", op.request, 0, kRequests - 1);
  CheckRange("request", op.target, 0, kRequests - 1);
  CheckRange("saved store", op.key, 0, kSavedStores - 1);
  CheckTokens(op.tokens);
  CheckIdentity(op.who);
  CheckRange("at", op.at, 0, limits::kMaxNumber);
  CheckRange("kill", op.kill, 0, limits::kMaxNumber);
  if (op.kill != 0 && !MayBeKilled(op.kind)) Illegal("kill is said of what writes to the folder");
  if (op.block_tokens) CheckRange("block", *op.block_tokens, 1, limits::kMaxExtent);
  if (op.x) CheckType(*op.x);
  switch (op.kind) {
    case PrefixOpKind::kOpen:
      if (op.tokens.empty()) Illegal("a prompt has a token");
      break;
    case PrefixOpKind::kWrite:
      if (op.count) CheckRange("tokens of write", *op.count, 1, limits::kMaxTokens);
      if (op.count && !op.tokens.empty()) {
        Illegal("more= follows after the whole prompt: write A more=TOKENS");
      }
      break;
    case PrefixOpKind::kTrimTo:
    case PrefixOpKind::kEvict:
      if (!op.count) Illegal("a number of tokens is missing");
      CheckRange("tokens", *op.count, op.kind == PrefixOpKind::kEvict ? 1 : -limits::kMaxNumber,
                 limits::kMaxNumber);
      break;
    default:
      break;
  }
}

}  // namespace

void ValidatePrefixCase(const PrefixCase& c) {
  CheckSetup(c.setup);
  if (c.ops.size() > limits::kMaxOps) {
    Illegal(fmt::format("more than {} operations", limits::kMaxOps));
  }
  const double token_bytes = static_cast<double>(c.setup.layers * c.setup.kv_heads) *
                             static_cast<double>(c.setup.k_dim + c.setup.v_dim) * 4;
  // At the end of a case a request of the whole capacity is written.
  double tokens = static_cast<double>(c.setup.capacity_tokens);
  for (const PrefixOp& op : c.ops) {
    CheckOp(op);
    tokens += static_cast<double>(CountTokens(op.tokens));
  }
  if (tokens * token_bytes > static_cast<double>(limits::kMaxCaseBytes)) {
    Illegal(fmt::format("K and V of the tokens that it names would exceed {} bytes",
                        limits::kMaxCaseBytes));
  }
}

}  // namespace kvcheck

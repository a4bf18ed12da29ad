// Logits in a safetensors file: whole rows, or the most likely tokens and the log of the sum.

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <numeric>

#include "golden/safetensors_file.h"
#include "reference/numerics/convert.h"
#include "reference/spec/dtype.h"
#include "reference/spec/error.h"
#include "tools/agree/logits_dump.h"
#include "tools/agree/measures.h"

namespace kvcheck {
namespace {

constexpr double kNoFloor = -std::numeric_limits<double>::infinity();

class SafetensorsLogits : public LogitsDump {
 public:
  explicit SafetensorsLogits(const std::string& path) : LogitsDump(path), file_(path) {
    const auto& objects = file_.index().objects;
    const bool whole = objects.count("/logits") > 0;
    const ObjectRecord& rows = Matrix(whole ? "/logits" : "/topk_logits");
    positions_ = rows.shape.axes[0].extent;
    width_ = rows.shape.axes[1].extent;
    if (!whole) {
      Integers("/topk_ids", 2);
      if (!DatasetRecord(file_, "/topk_ids").shape.SameExtents(rows.shape)) {
        Refuse("topk_ids and topk_logits have other extents");
      }
      const ObjectRecord& lse = DatasetRecord(file_, "/lse");
      if (lse.shape.axes.size() != 1 || lse.shape.axes[0].extent != positions_ ||
          !IsReal(lse.dtype)) {
        Refuse("lse is one real number per position");
      }
    }
    if (objects.count("/next") > 0) {
      Integers("/next", 1);
      if (DatasetRecord(file_, "/next").shape.axes[0].extent != positions_) {
        Refuse("next is one token per position");
      }
      has_next_ = true;
    }
    whole_ = whole;
    ReadError();
  }

  std::optional<int64_t> Positions() const override { return positions_; }

  std::string Description() const override {
    return fmt::format("safetensors, {} positions of {}{} tokens", positions_,
                       whole_ ? "" : "the most likely ", width_);
  }

 protected:
  bool Next(TokenDistribution* position) override {
    if (at() == positions_) return false;
    position->complete = whole_;
    position->error = error_;
    position->rounding = position->sum_error = 0;
    position->floor = kNoFloor;
    std::vector<double>& log_p = position->log_p;
    log_p = Numbers(whole_ ? "/logits" : "/topk_logits", at() * width_, width_);
    if (whole_) {
      position->tokens.clear();
      const double lse = LogSumExp(log_p);
      position->rounding = std::fabs(lse) * 0x1p-52;  // of the sum and of a difference, in double
      Subtract(lse, &log_p);
    } else {
      position->tokens.resize(log_p.size());
      TakeTopTokens(position);
    }
    position->text.reset();
    position->next.reset();
    if (has_next_) {
      const auto next = static_cast<int64_t>(Numbers("/next", at(), 1).front());
      if (next < -1 || (whole_ && next >= width_)) {
        Unreadable(fmt::format("next is {}, which is no token, and -1 where none is known", next));
      }
      if (next >= 0) position->next = next;
    }
    return true;
  }

 private:
  [[noreturn]] void Refuse(const std::string& what) const {
    throw Error(ErrorCode::kMissingData, what, file_.path());
  }
  [[noreturn]] void Unreadable(const std::string& what) const {
    throw Error(ErrorCode::kUnreadableFile, fmt::format("position {}: {}", at(), what), path());
  }
  static bool IsReal(DType dtype) {
    return dtype == DType::kFloat32 || dtype == DType::kFloat64 || dtype == DType::kFloat16 ||
           dtype == DType::kBFloat16;
  }
  const ObjectRecord& Matrix(const std::string& name) const {
    if (file_.index().objects.count(name) == 0) {
      Refuse("it has neither `logits` (positions, vocabulary) nor `topk_logits` (positions, k)");
    }
    const ObjectRecord& record = DatasetRecord(file_, name);
    if (record.shape.axes.size() != 2 || !IsReal(record.dtype) || record.shape.axes[1].extent < 1) {
      Refuse(fmt::format("{} is {} {}: a matrix of real numbers is asked for", name.substr(1),
                         Name(record.dtype), ToString(record.shape)));
    }
    return record;
  }
  void Integers(const std::string& name, size_t rank) const {
    const ObjectRecord& record = DatasetRecord(file_, name);
    if (record.shape.axes.size() != rank ||
        (record.dtype != DType::kInt32 && record.dtype != DType::kInt64)) {
      Refuse(fmt::format("{} is {} {}: {} of i32 or i64 is asked for", name.substr(1),
                         Name(record.dtype), ToString(record.shape),
                         rank == 1 ? "a row" : "a matrix"));
    }
  }
  void ReadError() {
    const auto& attributes = file_.index().objects.at("/").attributes;
    const auto found = attributes.find("metadata.error");
    if (found == attributes.end()) return;
    const std::string* text = std::get_if<std::string>(&found->second);
    const char* end = text == nullptr ? nullptr : text->data() + text->size();
    const auto read = text == nullptr ? std::from_chars_result{nullptr, std::errc::invalid_argument}
                                      : std::from_chars(text->data(), end, error_);
    if (read.ec != std::errc() || read.ptr != end || !(error_ >= 0) || !std::isfinite(error_)) {
      Refuse("its metadata `error` is no number from 0");
    }
  }
  std::vector<double> Numbers(const std::string& name, int64_t first, int64_t count) {
    const DType dtype = DatasetRecord(file_, name).dtype;
    const auto size = static_cast<size_t>(count);
    Tensor block(dtype, Shape::Unnamed({count}));
    file_.ReadElements(name, first, count, block.bytes.data());
    std::vector<double> values(size);
    DecodeTo(block, 0, values);
    return values;
  }
  static void Subtract(double lse, std::vector<double>* logits) {
    for (double& value : *logits) value -= lse;
  }
  // position->log_p: logits, as stored.
  void TakeTopTokens(TokenDistribution* position) {
    const double lse = Numbers("/lse", at(), 1).front();
    if (!std::isfinite(lse)) Unreadable(fmt::format("lse is {}", lse));
    // As far as the types of the file can hold both, and an engine its sum.
    double largest = 0;
    for (const double logit : position->log_p) {
      if (std::isfinite(logit)) largest = std::max(largest, std::fabs(logit));
    }
    position->rounding = largest * UnitRoundoff(DatasetRecord(file_, "/topk_logits").dtype) +
                         std::fabs(lse) * UnitRoundoff(DatasetRecord(file_, "/lse").dtype);
    position->sum_error = kF32SumError;
    Subtract(lse, &position->log_p);
    Sort(Numbers("/topk_ids", at() * width_, width_), position);
  }
  void Sort(const std::vector<double>& ids, TokenDistribution* position) const {
    std::vector<size_t> order(ids.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return ids[a] < ids[b]; });
    const std::vector<double> unsorted = position->log_p;
    for (size_t i = 0; i < order.size(); ++i) {
      position->tokens[i] = static_cast<int64_t>(ids[order[i]]);
      position->log_p[i] = unsorted[order[i]];
      if (i > 0 && position->tokens[i] == position->tokens[i - 1]) {
        Refuse(fmt::format("position {} names token {} twice", at(), position->tokens[i]));
      }
      if (position->tokens[i] < 0) Unreadable(fmt::format("{} is no token", position->tokens[i]));
    }
  }

  SafetensorsFile file_;
  int64_t positions_ = 0;
  int64_t width_ = 0;
  bool whole_ = false;
  bool has_next_ = false;
  double error_ = 0;
};

}  // namespace

std::unique_ptr<LogitsDump> OpenSafetensorsLogits(const std::string& path) {
  return std::make_unique<SafetensorsLogits>(path);
}

}  // namespace kvcheck

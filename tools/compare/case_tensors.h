// The tensors of a case in files as people dump them: under other names, in a wider type whose
// values are those of the stated one, with the axes in another order. What was taken so is said in
// notes; what could mean two things is refused with the option that decides.

#ifndef TOOLS_COMPARE_CASE_TENSORS_H_
#define TOOLS_COMPARE_CASE_TENSORS_H_

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "reference/spec/case.h"
#include "reference/spec/tensor.h"
#include "reference/spec/tiles.h"
#include "tools/compare/axis_order.h"
#include "tools/corridor/stored_tensors.h"

namespace kvcheck {

// What the command line says of the tensors.
struct TensorChoices {
  DatasetNames map;                                      // --map NAME=/path
  std::map<std::string, std::vector<std::string>> axes;  // --axes NAME=LABELS; "": of all
  std::optional<DType> cast;                             // --cast TYPE
};

// Errors: kUsage for what is not of these forms.
TensorChoices ParseTensorChoices(const std::vector<std::string>& map,
                                 const std::vector<std::string>& axes, const std::string& cast);

class CaseTensors {
 public:
  // Errors: kSelection for a choice about a tensor that the case does not have.
  CaseTensors(Case c, TensorChoices choices);

  // The inputs, of the types and shapes of the case.
  // Errors: kMissingData when one is absent, or is not of the case's type and shape in any way that
  // is known; kSelection when several datasets, or several orders of axes, may be meant;
  // kUnreadableFile.
  TensorMap Inputs(const StoredFile& file);
  // The outputs likewise; file must outlive them.
  std::unique_ptr<ObservedSource> Outputs(const StoredFile& file);
  // Adds to the inputs what the file holds besides and the case may have left out; the paths, by
  // the names of spare_tensors.h.
  DatasetNames AddSpares(const StoredFile& file, TensorMap* inputs) const;
  // Where the outputs of the last call of Outputs come from.
  const std::map<std::string, TensorOrigin>& origins() const { return origins_; }
  // What was taken otherwise than as the case has it, and what was not looked at, as sentences.
  std::vector<std::string> Notes() const;
  // Tensors of the file that look like an answer to the case and are not judged, though nobody
  // chose between them with --map: a sentence each, for the warnings of a verdict. Notes() leaves
  // them out from then on.
  std::vector<std::string> TakeUnjudgedAnswers(const StoredFile& file);
  // Errors: kUsage for a choice that no tensor needed. Call it when all files were read.
  void CheckUsed() const;

 private:
  struct Found {
    std::string path;
    DType dtype = DType::kFloat32;  // of the elements as stored
    Shape shape;                    // as stored, in elements of dtype
    AxisOrder order;
    std::string remark;  // why this order was taken, where another is possible
  };
  using Specs = std::map<std::string, TensorSpec>;

  // Datasets that are, by their names, other tensors of the case.
  std::vector<std::string> MeantByOthers(const FileIndex& index, const std::string& name) const;
  std::map<std::string, Found> Find(const StoredFile& file, const Specs& specs);
  std::string PathOf(const StoredFile& file, const std::string& name, const TensorSpec& spec,
                     const std::vector<std::string>& taken) const;
  // Errors: kMissingData where two or more are not there, and names them all.
  void RefuseMissing(const StoredFile& file, const Specs& specs,
                     std::vector<std::string> taken) const;
  void OrderAxes(const StoredFile& file, const Specs& specs, std::map<std::string, Found>* found);
  std::optional<AxisOrder> SaidOrder(const StoredFile& file, const std::string& name,
                                     const std::string& path, const Shape& stored,
                                     const Shape& wanted);
  std::vector<AxisOrder> PossibleOrders(const Shape& stored, const Shape& wanted) const;
  DType StoredType(const StoredFile& file, const std::string& name, const TensorSpec& spec,
                   const ObjectRecord& record) const;
  Tensor Read(const StoredFile& file, const std::string& name, const TensorSpec& spec,
              const Found& found) const;
  // The output, asked for or not, of which a dataset has the name; none where --map chose it.
  std::optional<std::string> AnswerOf(const std::string& path) const;
  void Note(const std::string& name, const TensorSpec& spec, const Found& found);

  Case c_;
  TensorChoices choices_;
  std::set<std::string> used_axes_;
  // A tensor of the case whose axes can only be in another order than the case's.
  std::string reordered_;
  std::vector<std::string> notes_;
  std::map<std::string, TensorOrigin> origins_;
  // Datasets of each file that were not read.
  std::map<std::string, std::set<std::string>> others_;
};

}  // namespace kvcheck

#endif  // TOOLS_COMPARE_CASE_TENSORS_H_

import tensorflow as tf


def samples():
    for _ in range(100):
        yield [tf.random.uniform((1, 96, 96, 3))]


def by_name(model):
    converter = tf.lite.TFLiteConverter.from_keras_model(model)
    converter.optimizations = [tf.lite.Optimize.DEFAULT]  # expect: tflite-not-full-integer
    model_int8 = converter.convert()
    return model_int8


def by_type(folder):
    conv = tf.lite.TFLiteConverter.from_saved_model(folder)
    conv.optimizations = [tf.lite.Optimize.DEFAULT]  # expect: tflite-not-full-integer
    conv.inference_input_type = tf.uint8
    conv.inference_output_type = tf.uint8
    return conv.convert()


def by_operations(folder):
    conv = tf.lite.TFLiteConverter.from_saved_model(folder)
    conv.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]  # expect: tflite-not-full-integer
    return conv.convert()


def calibrated(model):
    converter = tf.lite.TFLiteConverter.from_keras_model(model)
    converter.optimizations = [tf.lite.Optimize.DEFAULT]
    converter.representative_dataset = samples
    converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
    model_int8 = converter.convert()
    return model_int8


def small(model):
    converter = tf.lite.TFLiteConverter.from_keras_model(model)
    converter.optimizations = [tf.lite.Optimize.DEFAULT]
    return converter.convert()


def halves(model):
    converter = tf.lite.TFLiteConverter.from_keras_model(model)
    converter.optimizations = [tf.lite.Optimize.DEFAULT]
    converter.target_spec.supported_types = [tf.float16]
    return converter.convert()

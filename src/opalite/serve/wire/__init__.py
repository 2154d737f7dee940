"""What requests and responses of the Open Inference Protocol hold, whatever carries them."""
